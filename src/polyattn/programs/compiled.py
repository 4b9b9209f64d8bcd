"""Compiled programs: a layer that runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from polyattn.model import LinearAttention
from polyattn.programs.assembly import to_layer
from polyattn.programs.language.program import Program
from polyattn.programs.language.schema import Schema
from polyattn.programs.lowering import Head
from polyattn.programs.running.batch import decode_batch
from polyattn.programs.running.decode import tasks_of
from polyattn.programs.running.engine import Engine
from polyattn.programs.running.runnable import Runnable


@dataclass(frozen=True, eq=False)
class Compiled(Runnable):
    """A program as one layer of linear attention, run autoregressively.

    heads : the heads by their nonzero entries
    program : what was compiled, if it was written as a program
    """

    schema: Schema
    heads: list[Head] = field(repr=False)
    program: Program | None = field(default=None, repr=False)

    @property
    def n_heads(self) -> int:
        """H, the number of heads."""
        return len(self.heads)

    @cached_property
    def layer(self) -> LinearAttention:
        """The layer: X (n, d), prompt and what followed, to the next token before rounding."""
        return to_layer(self.heads, self.n_dims)

    def predictor(self) -> Engine:
        return Engine(self.schema, self.heads)

    def run_batch(self, given: Sequence[tuple[Any, ...]], **options: Any) -> list[Any]:
        """Run many at once: ``run_batch([(dfa, word), ...])``; the results of ``run``."""
        tasks = tasks_of(self.schema, given, options)
        prompts, limits = [task.prompt for task in tasks], [task.limit for task in tasks]
        decoded = decode_batch(self.schema, self.heads, prompts, limits)
        return [task.read(each) for task, each in zip(tasks, decoded, strict=True)]

    def __repr__(self) -> str:
        name = self.program.name if self.program else "program"
        return f"Compiled({name}, {self.n_heads} heads, {self.n_dims} coordinates)"
