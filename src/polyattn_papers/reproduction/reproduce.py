"""reproduce: run the cells that are not finished yet, then write table, picture and page."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

from threadpoolctl import threadpool_limits

from polyattn.errors import (
    FileFormatError,
    InvalidInput,
    PolyattnError,
    missing_extra,
    require_choice,
    require_integer,
)
from polyattn.files.atomic import require_writable
from polyattn_papers.reproduction.environment import environment, merge_environments
from polyattn_papers.reproduction.experiment import PROFILES, Experiment, Row, Settings
from polyattn_papers.reproduction.finished_cells import FinishedCell, FinishedCells
from polyattn_papers.reproduction.page import write_pages
from polyattn_papers.reproduction.registry import find
from polyattn_papers.reproduction.result import Reproduction

#: Called with the number of finished cells, the number of all cells, and what was just done.
Listener = Callable[[int, int, str], None]


def reproduce(
    name: str,
    out: str | os.PathLike[str],
    profile: str = "smoke",
    fresh: bool = False,
    n_jobs: int = 1,
    on_cell: Listener | None = None,
) -> Reproduction:
    """Run an experiment and write ``OUT/NAME/`` with table, picture and page.

    Cells that an earlier run finished are taken from there unless ``fresh``.  With ``n_jobs``
    above 1 cells share the machine, and so do the times they measure.
    """
    experiment = find(name)
    require_choice("profile", profile, PROFILES)
    require_integer("n_jobs", n_jobs)
    _require_extras(experiment)
    folder = Path(out) / name
    finished = FinishedCells(experiment, folder / "cells")
    for written in (folder / "table.json", folder.parent / "index.html"):
        require_writable(written, "the output")
    cells = list(experiment.cells(profile))
    missing = [settings for settings in cells if fresh or finished.read(settings) is None]
    n_known = len(cells) - len(missing)
    if on_cell is not None:
        on_cell(n_known, len(cells), "")
    for number, settings in enumerate(_run(experiment, missing, finished, n_jobs), start=1):
        if on_cell is not None:
            on_cell(n_known + number, len(cells), describe(settings))
    done = [cell for settings in cells if (cell := finished.read(settings)) is not None]
    with _errors_of_cells(finished.folder, n_known):
        rows = _table(cells, done)
        made = Reproduction(
            experiment, profile, rows, experiment.findings(rows), experiment.gates(rows),
            sum(cell.seconds for cell in done),
            merge_environments([cell.surroundings for cell in done]),
        )  # fmt: skip
        made.write_table(folder)
        write_pages(made, folder)
    return made


def describe(settings: Settings) -> str:
    """Settings on one line."""
    return ", ".join(f"{name} {value}" for name, value in settings.items())


@contextmanager
def _errors_of_cells(folder: Path, n_known: int) -> Iterator[None]:
    """Rows that cannot be used are the fault of the cells that were there already, if any were."""
    try:
        yield
    except PolyattnError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if n_known == 0:
            raise
        raise FileFormatError(
            f"a finished cell in {str(folder)!r} does not hold the rows that its experiment writes "
            f"({type(error).__name__}: {error}); run all again with fresh=True (--recompute)."
        ) from error


def _run(
    experiment: Experiment, missing: Sequence[Settings], finished: FinishedCells, n_jobs: int
) -> Iterator[Settings]:
    """Run cells and keep their rows; yields the settings of each as it is finished."""
    if n_jobs == 1:
        for settings in missing:
            finished.keep(settings, _timed(experiment, settings))
            yield settings
        return
    waiting, running = list(missing), dict[Future[FinishedCell], Settings]()
    failed: Future[FinishedCell] | None = None
    with ProcessPoolExecutor(n_jobs, mp_context=get_context("spawn")) as pool:
        while waiting or running:
            # No more than run at once: what a pool has queued, an interrupt cannot take back.
            while waiting and len(running) < n_jobs:
                settings = waiting.pop(0)
                running[pool.submit(_run_alone, experiment.name, settings)] = settings
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                settings = running.pop(one)
                if one.exception() is not None:
                    # Nothing new is begun; what runs beside it is waited for and kept.
                    failed, waiting = one, []
                    continue
                finished.keep(settings, one.result())
                yield settings
    if failed is not None:
        failed.result()


def _run_alone(name: str, settings: Settings) -> FinishedCell:
    """One cell in a process of its own, on one thread."""
    experiment = find(name)
    if experiment.needs_torch:
        import torch

        torch.set_num_threads(1)
    with threadpool_limits(1):
        return _timed(experiment, settings)


def _timed(experiment: Experiment, settings: Settings) -> FinishedCell:
    start = time.perf_counter()
    rows = experiment.run(settings)
    return FinishedCell(rows, time.perf_counter() - start, environment())


def _table(cells: Sequence[Settings], done: Sequence[FinishedCell]) -> list[Row]:
    """All rows, each with the settings of its cell in front."""
    pairs = zip(cells, done, strict=True)
    rows = [settings | row for settings, cell in pairs for row in cell.rows]
    names = {tuple(row) for row in rows}
    if len(names) != 1:
        raise InvalidInput(f"all rows of an experiment must have the same columns; got {names}.")
    return rows


def _require_extras(experiment: Experiment) -> None:
    """Refuse before hours of work, not after them."""
    for package, extra in (("matplotlib", "plots"), ("torch", "torch")):
        needed = package == "matplotlib" or experiment.needs_torch
        if needed and find_spec(package) is None:
            raise missing_extra(package, extra)
