"""Which mutants are tried: a seeded sample, spread over the files in proportion to their size."""

import ast
import hashlib
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from operators import Position, operators

PACKAGE = Path("src/polyattn")
# The numerical core.
FOLDERS = ("solve", "stats", "features", "heads", "certify", "model")


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    ``before`` and ``after`` are the changed lines without their indentation; together with file
    and function they name a mutant even when lines above it come and go.  Of equal lines in a
    function ``earlier`` says how many stand above it.
    """

    file: str
    function: str
    line: int
    last_line: int
    operator: str
    before: str
    after: str
    earlier: int
    source: str

    @property
    def change(self) -> tuple[str, str, str, str]:
        """What is changed, and where."""
        return (self.file, self.function, self.before, self.after)

    @property
    def name(self) -> tuple[str, ...]:
        """What the mutant is called in tables."""
        return (*self.change, str(self.earlier)) if self.earlier else self.change


@dataclass(frozen=True)
class _Place:
    """A stretch of source with the (operator, occurrence) pairs that change it."""

    position: Position
    ways: tuple[tuple[str, int], ...]


def sample(
    root: Path, size: int, seed: int, only: str = "", folders: Sequence[str] = FOLDERS
) -> list[Mutant]:
    """About ``size`` mutants of these folders, of the files that begin with ``only``.

    A file's share is its share of places that can be changed.  Which of them are taken depends on
    the seed and on their own lines: changes elsewhere leave them as they are.
    """
    files = [p for folder in folders for p in sorted((root / PACKAGE / folder).rglob("*.py"))]
    places = {path: _places(path.read_text(encoding="utf-8")) for path in files}
    total = sum(len(found) for found in places.values())
    mutants = []
    for path, found in places.items():
        name = path.relative_to(root).as_posix()
        if name.startswith((only, f"{PACKAGE.as_posix()}/{only}")):
            share = round(size * len(found) / total)
            mutants += _mutants_of(path, name, found, share, str(seed))
    return mutants


def known_equivalents(path: Path, root: Path) -> dict[tuple[str, str, str, str], str]:
    """The mutants that change nothing a caller can see, with the reason; of present lines alone."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["equivalent"]
    for entry in entries:
        lines = (root / entry["file"]).read_text(encoding="utf-8").splitlines()
        if entry["before"] not in " ".join(line.strip() for line in lines):
            raise LookupError(f"{path.name}: {entry['file']} has no line {entry['before']!r}")
    return {(e["file"], e["function"], e["before"], e["after"]): e["reason"] for e in entries}


def digest(*paths: Path) -> str:
    """A short name for the content of files."""
    content = hashlib.sha256()
    for path in paths:
        content.update(path.read_bytes() + b"\0")
    return content.hexdigest()[:16]


def _mutants_of(path: Path, name: str, places: list[_Place], share: int, seed: str) -> list[Mutant]:
    """The mutants of a file whose names come first in an order that the seed draws."""
    source = path.read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines()

    def lot(place: _Place) -> bytes:
        (line, column), _ = place.position
        stands = _function_of(tree, line), lines[line - 1].strip(), column
        return hashlib.sha256(repr((seed, name, *stands)).encode()).digest()

    mutants: list[Mutant] = []
    for place in sorted(places, key=lot):
        operator, occurrence = place.ways[lot(place)[-1] % len(place.ways)]
        if len(mutants) < share and (changed := _changed(source, operator, occurrence)):
            mutants.append(_described(name, source, changed, operator))
    return sorted(mutants, key=lambda mutant: mutant.line)


def _changed(source: str, operator: str, occurrence: int) -> str | None:
    """The mutated source, or None where that is no Python or the same program."""
    changed = mutate_code(source, operators()[operator], occurrence)
    try:
        same = changed is None or ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source))
    except SyntaxError:
        return None
    return None if same else changed


def _described(name: str, source: str, changed: str, operator: str) -> Mutant:
    old, new = source.splitlines(), changed.splitlines()
    first = next(i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    end = next(i for i, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b)
    before, after = (
        " ".join(line.strip() for line in lines[first : len(lines) - end]) for lines in (old, new)
    )
    function = _function_of(ast.parse(source), first + 1)
    stripped = [line.strip() for line in old]
    earlier = stripped[_first_line(ast.parse(source), first + 1) : first].count(stripped[first])
    last_line = len(old) - end
    return Mutant(name, function, first + 1, last_line, operator, before, after, earlier, changed)


def _first_line(tree: ast.Module, line: int) -> int:
    """The index of the first line of the innermost function or class around a line, or 0."""
    around = [
        node.lineno - 1
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, default=0)


def _function_of(tree: ast.Module, line: int) -> str:
    """The dotted name of the innermost function or class around a line, or "" at the top."""
    names, body = [], tree.body
    while inner := [
        node
        for node in body
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or 0)
    ]:
        names.append(inner[0].name)
        body = inner[0].body
    return ".".join(names)


def _places(source: str) -> list[_Place]:
    """All places of a file that some operator changes."""
    nodes = list(ast_nodes(get_ast(source)))
    skipped = _without_behaviour(ast.parse(source), source)
    ways: dict[Position, list[tuple[str, int]]] = defaultdict(list)
    for name, operator in operators().items():
        positions = [p for node in nodes for p in operator.mutation_positions(node)]
        for occurrence, (start, stop) in enumerate(positions):
            if not any(low <= start < high for low, high in skipped):
                ways[start, stop].append((name, occurrence))
    return [_Place(position, tuple(found)) for position, found in ways.items()]


def _without_behaviour(tree: ast.Module, source: str) -> list[Position]:
    """Annotations, decorators and the words of errors: a change there is a change of style."""
    lines = source.splitlines()
    skipped: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            skipped += [node.returns, *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            skipped += node.decorator_list
        elif isinstance(node, ast.arg | ast.AnnAssign):
            skipped.append(node.annotation)
        elif isinstance(node, ast.Raise | ast.JoinedStr):
            skipped.append(node)
    return [_span(node, lines) for node in skipped if isinstance(node, ast.stmt | ast.expr)]


def _span(node: ast.stmt | ast.expr, lines: list[str]) -> Position:
    """First and last position, columns in characters as parso counts them."""
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    return (
        (node.lineno, _characters(lines[node.lineno - 1], node.col_offset)),
        (end_line, _characters(lines[end_line - 1], end_column)),
    )


def _characters(line: str, offset: int) -> int:
    return len(line.encode()[:offset].decode())
