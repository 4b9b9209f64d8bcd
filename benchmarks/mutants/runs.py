"""Runs of pytest on a private copy of the tree, each in a process that is forked and thrown away.

Numerical packages are imported once, in the parent; polyattn and its tests only in the children,
which therefore see the mutated file and begin within a fraction of a second.
"""

import importlib
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

_IMPORTED_ONCE = (
    "clarabel",
    "flint",
    "hypothesis.extra.numpy",
    "rich.console",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.sparse.linalg",
    "sklearn.linear_model",
    "sklearn.utils.estimator_checks",
    "torch",
)
_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", ".mutants", "__pycache__", ".*_cache", ".hypothesis", "_build", "cells"
)
_MEMORY = 12 << 30


@dataclass(frozen=True)
class Run:
    """How a run ended, and what the child noted.

    "passed", "failed", "time-out", "crashed", or "empty": there was no test but slow ones.
    """

    ending: str
    notes: dict[str, Any]


class Selection:
    """A pytest plugin that keeps the named tests, in this order, and notes which one failed."""

    def __init__(self, tests: list[str]) -> None:
        self.rank = {test: rank for rank, test in enumerate(tests)}
        self.notes: dict[str, Any] = {}

    def pytest_configure(self) -> None:
        """A failing example is enough: it need not be made smaller."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings.get_profile("fast"), phases=phases)
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self.rank]
        items[:] = sorted(kept, key=lambda item: self.rank[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.notes["test"] = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.notes["test"] = f"{report.nodeid} (import)"


class PrivateCopy:
    """A copy of the tree in which files are mutated and tests run; the tree itself stays."""

    def __init__(self, root: Path, place: Path) -> None:
        self.place = place
        if "polyattn" in sys.modules:
            raise RuntimeError("polyattn is imported already: children would not see a mutant")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(root, place, ignore=_LEFT_OUT)
        for name in _IMPORTED_ONCE:
            importlib.import_module(name)

    @contextmanager
    def mutated(self, file: str, source: str) -> Iterator[None]:
        """The file with another source, and without compiled remains of the old one."""
        path = self.place / file
        original, times = path.read_bytes(), path.stat()
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()
        path.write_text(source, encoding="utf-8")
        try:
            yield
        finally:
            path.write_bytes(original)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def run(self, tests: list[str], cpu_seconds: float) -> Run:
        """The tests in this order, until one fails."""
        selection = Selection(tests)
        files = sorted({test.split("::")[0] for test in tests})
        arguments = [*files, "-x"]
        run = self.in_child(arguments, selection, lambda: selection.notes, cpu_seconds)
        if run.ending == "empty":
            raise RuntimeError("pytest found none of the chosen tests")
        return run

    def in_child(
        self,
        arguments: list[str],
        plugin: object,
        notes: Callable[[], dict[str, Any]],
        cpu_seconds: float,
    ) -> Run:
        """Pytest with these arguments in a child that may use so many seconds of processor time."""
        written = self.place / ".notes.json"
        written.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            code = 99
            try:
                self._prepare_child(cpu_seconds)
                code = int(pytest.main([*arguments, *_OPTIONS], plugins=[plugin]))
                written.write_text(json.dumps(notes()), encoding="utf-8")
            finally:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(code)
        status = _wait(child, 30.0 + 8.0 * cpu_seconds)
        found = json.loads(written.read_text("utf-8")) if written.exists() else {}
        said = (self.place / ".output.txt").read_text(encoding="utf-8", errors="replace")
        return Run(_ending(status, said), found)

    def _prepare_child(self, cpu_seconds: float) -> None:
        os.setsid()
        os.chdir(self.place)
        quiet = os.open(self.place / ".output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        limit = int(cpu_seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.path[0] = str(self.place / "src")
        os.environ.update(PYTHONPATH=sys.path[0], PYTHONDONTWRITEBYTECODE="1", CI="1")
        sys.dont_write_bytecode = True


_OPTIONS = ["-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist"]
# Hypothesis is imported before pytest starts: its asserts need no better messages.
_OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]


def _wait(child: int, seconds: float) -> int | None:
    """The child's exit status, or None when it had to be killed."""
    deadline, pause = time.monotonic() + seconds, 0.01
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(pause)
        pause = min(0.2, 1.5 * pause)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _ending(status: int | None, output: str) -> str:
    if status is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return "time-out"
    if os.WIFSIGNALED(status):
        return "crashed"
    code = os.WEXITSTATUS(status)
    # The mutant cannot even be imported by what all tests share.
    if code == pytest.ExitCode.USAGE_ERROR and "ImportError while loading conftest" in output:
        return "failed"
    if code in {4, 99}:
        raise RuntimeError(f"pytest could not run the chosen tests (exit code {code})")
    return {0: "passed", 5: "empty"}.get(code, "failed")
