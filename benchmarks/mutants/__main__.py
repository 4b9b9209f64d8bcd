"""Mutation testing, of the numerical core by default: `make mutants`.

Small changes are made to the source one at a time, and the tests are asked to notice.  A change
that none of them notices is either no change of behaviour, and then named in equivalent.toml with
the reason, or it shows what the tests do not look at.
"""

import ast
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
from coverage_map import CoverageMap, trace
from runs import PrivateCopy
from sampling import FOLDERS, Mutant, digest, known_equivalents, sample

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
FIRST_SECONDS = 4.0


@click.command()
@click.option("--sample", "size", default=330, help="How many mutants of these folders.")
@click.option(
    "--folders",
    default=FOLDERS,
    multiple=True,
    help="Of src/polyattn; the numerical core by default.",
)
@click.option("--seed", default=1, help="Another seed, another sample.")
@click.option("--only", default="", help="Of those a folder or file, for example solve/dual.")
@click.option("--tests", default=("*",), multiple=True, help="Only these tests: solvers, certify*.")
@click.option("--seconds", default=150.0, help="Processor time of tests for one mutant.")
@click.option(
    "--results", type=click.Path(path_type=Path), default=ROOT / ".mutants", show_default=True
)
def main(
    size: int,
    folders: tuple[str, ...],
    seed: int,
    only: str,
    tests: tuple[str, ...],
    seconds: float,
    results: Path,
) -> None:
    """Tries a sample of mutants and fails if one of them lives on unexplained."""
    equivalents = known_equivalents(EQUIVALENT, ROOT)
    copy = PrivateCopy(ROOT, results / "copy")
    mutants = sample(copy.place, size, seed, only, folders)
    covered = CoverageMap()
    for name, traced in trace(copy, results / "coverage", tests, folders):
        covered.add(traced)
        click.echo(f"{len(traced['seconds']):5d} tests of {name}")
    table = _Table(results / "results.jsonl", copy.place)
    endings: Counter[str] = Counter()
    for number, mutant in enumerate(mutants, start=1):
        ending = "equivalent"
        if mutant.change not in equivalents:
            record = table.known(mutant) or _tried(
                copy, covered, mutant, seconds, table.first(mutant)
            )
            table.keep(mutant, record)
            ending = record["ending"]
        endings[ending] += 1
        click.echo(f"{number:4d}/{len(mutants)} {ending:10s} {_sentence(mutant)}")
    click.echo("  ".join(f"{ending}: {count}" for ending, count in sorted(endings.items())))
    if endings["survived"]:
        raise click.ClickException("Survivors need a test, or a reason in equivalent.toml.")


class _Table:
    """Results as lines of JSON.

    What was killed stays killed while its file and that of the test that did it are the same;
    survivors are tried again as soon as any test has changed.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self.path, self.root = path, root
        self.tests = digest(*sorted((root / "tests").rglob("*.py")))
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.records = {tuple(r["mutant"]): r for r in map(json.loads, lines)}

    def known(self, mutant: Mutant) -> dict[str, Any] | None:
        """The result of an earlier run that still holds."""
        record = self.records.get(mutant.name)
        if record is None or record["file"] != digest(self.root / mutant.file):
            return None
        by_same_test = "test" in record and record["killer"] == self.killer(record)
        return dict(record) if by_same_test or record["tests"] == self.tests else None

    def killer(self, record: dict[str, Any]) -> str:
        """The file of the test that killed a mutant, in short; of a removed one nothing."""
        path = self.root / record["test"].split("::")[0]
        return digest(path) if path.exists() else ""

    def first(self, mutant: Mutant) -> str:
        """The test that killed a mutant before: it is likely to do so again."""
        return str(self.records.get(mutant.name, {}).get("test", ""))

    def keep(self, mutant: Mutant, record: dict[str, Any]) -> None:
        """Writes a result down, once."""
        known = {
            "mutant": mutant.name,
            "file": digest(self.root / mutant.file),
            "tests": self.tests,
            **record,
        }
        if "test" in record:
            known["killer"] = self.killer(record)
        if self.records.get(mutant.name) != known:
            self.records[mutant.name] = known
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(known) + "\n")


def _tried(
    copy: PrivateCopy, covered: CoverageMap, mutant: Mutant, seconds: float, killer: str
) -> dict[str, Any]:
    """How the tests end on a mutant: the last killer, quick ones, then all that run its lines."""
    began = time.monotonic()
    tests = covered.tests_of(mutant, _function_lines(copy.place, mutant))
    tests.sort(key=lambda test: test != killer)
    first, rest = _within(covered, tests, FIRST_SECONDS)
    second, left_out = _within(covered, rest, seconds)
    record: dict[str, Any] = {"ending": "survived", "line": mutant.line, "left_out": len(left_out)}
    with copy.mutated(mutant.file, mutant.source):
        for stage in filter(None, (first, second)):
            limit = 20.0 + 5.0 * sum(covered.seconds[test] for test in stage)
            run = copy.run(stage, limit)
            if run.ending != "passed":
                record |= {"ending": "killed", "how": run.ending, **run.notes}
                break
    return record | {"tests_run": len(first), "seconds": round(time.monotonic() - began, 1)}


def _within(covered: CoverageMap, tests: list[str], seconds: float) -> tuple[list[str], list[str]]:
    """The first tests that together take no more than so many seconds, and the others."""
    total = 0.0
    for count, test in enumerate(tests):
        total += covered.seconds[test]
        if total > seconds:
            return tests[: max(count, 1)], tests[max(count, 1) :]
    return tests, []


def _function_lines(root: Path, mutant: Mutant) -> range:
    """The lines of the innermost function around a mutant."""
    tree = ast.parse((root / mutant.file).read_text(encoding="utf-8"))
    around = [
        range(node.lineno, (node.end_lineno or 0) + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.lineno <= mutant.line <= (node.end_lineno or 0)
    ]
    return min(around, key=len, default=range(0))


def _sentence(mutant: Mutant) -> str:
    file = mutant.file.removeprefix("src/polyattn/")
    return f"{file}:{mutant.line} {mutant.function}: {mutant.before}  ->  {mutant.after}"


if __name__ == "__main__":
    main()
