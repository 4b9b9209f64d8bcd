"""Rows that are read in many passes: with their summaries in a scratch file, where that pays.

Summaries are kept in memory while they fit.  Beyond that a pass makes them from the tokens, or
reads them from a scratch file, whichever is estimated to be faster.  Workers of a cluster keep
what they have memory for, and write no files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from polyattn.solve.costs import READ_BYTE
from polyattn.solve.planning import Plan
from polyattn.stats.rows import Rows
from polyattn.stats.scratch import ScratchFile, scratch_fits


@contextmanager
def reread(rows: Rows, made: Plan) -> Iterator[Rows]:
    """The rows, with a scratch file if they are too many for memory and reading it is faster.

    made : the plan, which knows what making the summaries takes
    """
    reading = READ_BYTE * rows.summary_bytes
    making = made.steps["summaries"] + made.steps["reading"]
    kept = rows.keeps_summaries or rows.is_on_workers
    if kept or reading > making or not scratch_fits(rows.summary_bytes):
        yield rows
        return
    with ExitStack() as files:
        yield rows.with_scratch(*(files.enter_context(ScratchFile()) for _ in rows.parts))
