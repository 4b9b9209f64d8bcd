"""``polyattn show``: what is in a file that polyattn wrote, whatever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

import polyattn as pa
from polyattn.cli import console, tables
from polyattn.cli.data import ARRAYS
from polyattn.cli.fit import learned_text
from polyattn.cli.program.shown import machine_text, program_content, program_text
from polyattn.cli.tables import Grid
from polyattn.display import Described, plain
from polyattn.errors import FileFormatError, InvalidInput
from polyattn.files.array_files import array_places
from polyattn.files.atomic import file_to_read
from polyattn.files.records import Record, read_record
from polyattn.files.strict_json import parse_json
from polyattn.programs import Compiled, Learned
from polyattn.programs.machines.files import SUFFIXES as MACHINE_SUFFIXES
from polyattn.programs.machines.files import content_of, load_machine
from polyattn.sources.open_tables import SUFFIXES as TABLE_SUFFIXES
from polyattn.sources.open_tables import described_columns
from polyattn.stats.checkpoint import KIND as CHECKPOINT

# A document in JSON is read up to this size.
MOST_BYTES = 100_000_000


class FileContent(NamedTuple):
    """What a file holds, as plain data and for people."""

    content: dict[str, Any]
    text: list[str | Grid]


@click.command()
@click.argument("file", type=console.FILE)
@click.option(
    "--weights", is_flag=True,
    help="Print all numbers: matrices of heads, or entries of those of a program with the meaning "
    "of their coordinates.",
)  # fmt: skip
@console.json_option
def show(file: Path, weights: bool, as_json: bool) -> None:
    """Say what is in FILE, whatever polyattn wrote.

    A layer, a result, an estimator or a pipeline, statistics, a checkpoint, a program, a machine
    (.json, .yaml), a certificate (.json), a reproduction (table.json); of predictions and data
    (.npz, .csv, .parquet) which arrays or columns there are.  Nothing is computed for it.  With
    --json arrays are printed, too.
    """
    with console.working("reading"):
        found = _shown(file_to_read(file), weights)
    console.emit(found.content, found.text, as_json)


def _shown(path: Path, weights: bool) -> FileContent:
    suffix = path.suffix.lower()
    if suffix in ARRAYS:
        return _arrays(path)
    if suffix in TABLE_SUFFIXES:
        return _table(path)
    with path.open("rb") as file:
        start = file.read(512).lstrip()
    if suffix in MACHINE_SUFFIXES and suffix != ".json":
        return _machine(path)
    if start.startswith((b"{", b"[")) and b"\0" not in start[:8]:
        return _document(path)
    if start.lower().startswith((b"<!doctype", b"<html")):
        raise InvalidInput(f"{str(path)!r} is a page; open it in a browser.")
    record = read_record(path)
    return _checkpoint(record) if record.kind == CHECKPOINT else saved_thing(pa.load(path), weights)


def saved_thing(loaded: Any, weights: bool = False) -> FileContent:
    """What ``load`` gave, as it describes itself."""
    if isinstance(loaded, Compiled | Learned):
        return FileContent(program_content(loaded), program_text(loaded, weights))
    thing = loaded if isinstance(loaded, Described) else _pipeline(loaded)
    text: list[str | Grid]
    if isinstance(loaded, pa.LearnedSoftmax):
        text = learned_text(loaded)
    else:
        text = console.shown(thing, numbers=not weights)
    return FileContent(thing.to_full_dict(), [*text, *(_numbers(thing) if weights else ())])


def _pipeline(loaded: Any) -> Described:
    """A pipeline of scikit-learn, which does not describe itself."""
    if not hasattr(loaded, "steps"):
        raise InvalidInput(f"there is nothing to show of a {type(loaded).__name__}.")
    # scikit-learn is slow to load.
    from polyattn.estimators.description import described

    return described(loaded)


def _numbers(thing: Described) -> list[str | Grid]:
    """Every array, matrix by matrix."""
    text: list[str | Grid] = []
    for name, array in thing.arrays().items():
        rows = np.atleast_2d(array)
        for place in np.ndindex(rows.shape[:-2]):
            at = f"[{', '.join(map(str, place))}]" if place else ""
            text.append(f"{name}{at} {rows.shape[-2:]}:")
            text += ["  ".join(f"{number:10.4g}" for number in row) for row in rows[place]]
    return text


def _document(path: Path) -> FileContent:
    """A certificate, a machine, or what other verbs wrote as JSON."""
    if path.stat().st_size > MOST_BYTES:
        raise FileFormatError(f"{str(path)!r} is too large for a document of polyattn.")
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (InvalidInput, UnicodeDecodeError) as error:
        raise FileFormatError(f"{str(path)!r} is no JSON document: {error}") from None
    keys = set(content) if isinstance(content, dict) else set()
    if keys & {"transitions", "rules"} or isinstance(content, list):
        return _machine(path)
    if {"method", "terms", "outcome"} <= keys:
        return _learned_words(content)
    if {"name", "claim", "findings", "gates"} <= keys:
        return _reproduction(content)
    return saved_thing(pa.load(path))


def _machine(path: Path) -> FileContent:
    named = load_machine(path)
    content = content_of(named)
    return FileContent(content, machine_text(named, content))


def _learned_words(content: dict[str, Any]) -> FileContent:
    """A program in words, as ``polyattn program learn -o FILE.json`` writes it."""
    outcome = content["outcome"]
    rows = {
        "program": content["kind"], "method": content["method"],
        "sizes": console.sizes_text(content["sizes"]), "traces": content["n_traces"],
    }  # fmt: skip
    terms = content["terms"] or []
    text: list[str | Grid] = [outcome["sentence"], tables.facts("learned", rows)]
    return FileContent(content, [*text, *(["terms:"] if terms else []), *console.numbered(terms)])


def _reproduction(content: dict[str, Any]) -> FileContent:
    """An experiment of the papers, as ``polyattn reproduce`` writes it."""
    gates = [
        (each["claim"], each["seen"], "holds" if each["passed"] else "FAILS")
        for each in content["gates"]
    ]
    text: list[str | Grid] = [
        f"{content['name']}: {content['title']}", content["claim"],
        *(f"- {finding}" for finding in content["findings"]),
        tables.table("gates", ("gate", "seen", ""), gates),
    ]  # fmt: skip
    return FileContent(content, text)


def _checkpoint(record: Record) -> FileContent:
    """Sums over a part of a source, which the call that wrote them goes on from."""
    known = ("statistics", "n_done", "n_chunks", "version")
    content = {"kind": CHECKPOINT} | {name: record.metadata.get(name) for name in known}
    sentence = (
        "The checkpoint of a sum over a source: the same command, or update(source, "
        "checkpoint=...), goes on from it."
    )
    rows = {
        "sums": content["statistics"], "written by": f"polyattn {content['version']}",
        "done": f"{content['n_done']} of {content['n_chunks']} chunks",
    }  # fmt: skip
    return FileContent(plain(content), [sentence, tables.facts("", rows)])


def _arrays(path: Path) -> FileContent:
    places = array_places(path)
    sizes = {name: (list(place.shape), str(place.dtype)) for name, place in places.items()}
    content = {
        "kind": "arrays",
        "arrays": {name: {"shape": shape, "dtype": kind} for name, (shape, kind) in sizes.items()},
    }
    rows = [(name, " x ".join(map(str, shape)), kind) for name, (shape, kind) in sizes.items()]
    grid = tables.table("arrays", ("name", "shape", "numbers"), rows, whole=("name",))
    return FileContent(content, ["Arrays: data for polyattn fit, or predictions.", grid])


def _table(path: Path) -> FileContent:
    columns = described_columns(path)
    grid = tables.table("columns", ("name", "holds"), columns.items(), whole=("name",))
    content = {"kind": "table", "columns": columns}
    return FileContent(content, ["A table: data for polyattn fit, or predictions.", grid])
