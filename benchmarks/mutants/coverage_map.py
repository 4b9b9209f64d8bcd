"""Which tests run which lines of the core, and how long each takes: only those can kill a mutant.

The map is made file by file with coverage.py and kept beside the results; a file of tests is
traced anew when it, a helper of the tests or the library has changed.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import coverage
import pytest
from runs import PrivateCopy
from sampling import PACKAGE, Mutant, digest

_SECONDS_PER_FILE = 900


class CoverageMap:
    """For each test its seconds of processor time, for each line of the core its tests."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))

    def tests_of(self, mutant: Mutant, functions: range) -> list[str]:
        """The tests that could see a mutant, quick ones first.

        Lines that run at import only, such as constants, belong to the tests of the function
        around them, or else to those of the file.
        """
        lines = self.lines[mutant.file]
        for stretch in (range(mutant.line, mutant.last_line + 1), functions, list(lines)):
            if found := set().union(*(lines[line] for line in stretch if line in lines)):
                return sorted(found, key=self._order)
        return []

    def add(self, traced: dict[str, Any]) -> None:
        """Takes up what was traced of one file of tests."""
        self.seconds |= traced["seconds"]
        for file, lines in traced["lines"].items():
            for line, tests in lines.items():
                self.lines[file][int(line)] |= set(tests) & set(traced["seconds"])

    def _order(self, test: str) -> tuple[int, str]:
        """By powers of two of the time, then by file: fixtures of a module are made once."""
        return (int(self.seconds[test] * 100).bit_length(), test)


class _Tracer:
    """A pytest plugin that traces folders of the library under the name of the running test."""

    def __init__(self, place: Path, folders: Sequence[str]) -> None:
        inside = [str(place / PACKAGE / folder / "*") for folder in folders]
        self.place = place
        self.coverage = coverage.Coverage(data_file=None, include=inside, config_file=False)
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    def pytest_configure(self) -> None:
        self.coverage.start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        began = sum(os.times()[:4])
        yield
        self.seconds[item.nodeid] = sum(os.times()[:4]) - began

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)

    def notes(self) -> dict[str, Any]:
        """Seconds of the tests that passed, and for each file and line the tests that ran it."""
        self.coverage.stop()
        data = self.coverage.get_data()
        lines = {
            Path(file).relative_to(self.place).as_posix(): {
                line: [test for test in tests if test]
                for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        passed = {test: s for test, s in self.seconds.items() if test not in self.failed}
        return {"seconds": passed, "lines": lines}


def trace(
    copy: PrivateCopy, kept: Path, names: Sequence[str], folders: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the files of tests with these names run, made or read, file by file."""
    kept.mkdir(parents=True, exist_ok=True)
    tests = copy.place / "tests"
    shared = sorted({*(copy.place / "src").rglob("*.py"), *tests.glob("[!t]*.py")})
    found = {path for name in names for path in tests.rglob(f"test_{name}.py")}
    # Those of optional packages have an environment of their own.
    for path in sorted(path for path in found if path.parent.name != "optional"):
        name = path.relative_to(copy.place).as_posix()
        stem = "-".join([*folders, *path.relative_to(tests).with_suffix("").parts]).replace(
            "/", "-"
        )
        written = kept / f"{stem}-{digest(*shared, path)}.json"
        if not written.exists():
            tracer = _Tracer(copy.place, folders)
            run = copy.in_child([name], tracer, tracer.notes, _SECONDS_PER_FILE)
            if "lines" not in run.notes:
                raise RuntimeError(f"{name} could not be traced: {run.ending}")
            for outdated in kept.glob(f"{stem}-{'?' * 16}.json"):
                outdated.unlink()
            written.write_text(json.dumps(run.notes), encoding="utf-8")
        yield name, json.loads(written.read_text(encoding="utf-8"))
