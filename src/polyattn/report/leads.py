"""What a page is about, in one line."""

from __future__ import annotations

from typing import Any

from polyattn.auditing import Audit
from polyattn.certify import Certificate
from polyattn.fitting.result import FitResult
from polyattn.model import LinearAttention
from polyattn.model.layer import AttentionLayer
from polyattn.programs import Learned
from polyattn.report.page_data import GivenData
from polyattn.report.statement import count
from polyattn.sequences import SequenceBatch


def lead(thing: Any, data: GivenData | None) -> str:
    """A line under the title: what was given, and beside which data."""
    beside = "" if data is None else f", beside {_sequences(data.batch)}"
    return f"{_described(thing)}{beside}."


def program_lead(program: Any) -> str:
    """The same for a program."""
    size = f"tokens of {count(program.schema.n_dims, 'coordinate')}"
    if isinstance(program, Learned):
        return f"Learned from {count(program.n_traces, 'trace')}, {size}."
    return f"{program.name[:1].upper()}{program.name[1:]}, {size}."


def _described(thing: Any) -> str:
    if isinstance(thing, FitResult):
        sizes = _sizes(thing.n_dims, len(thing.coef))
        return f"Linear attention, {sizes}, mode {thing.mode}"
    if isinstance(thing, Audit):
        return _described(thing.certificate)
    if isinstance(thing, AttentionLayer):
        kind = "Linear" if isinstance(thing, LinearAttention) else "Softmax"
        sizes = _sizes(thing.n_dims, thing.n_outputs)
        return f"{kind} attention, {count(thing.n_heads, 'head')}, {sizes}, mode {thing.mode}"
    if hasattr(thing, "layer"):
        return "No layer was found" if thing.layer is None else _described(thing.layer)
    made_of = "a certificate" if isinstance(thing, Certificate) else "sums"
    about = f"{count(thing.n_sequences, 'sequence')} with {count(thing.n_dims, 'coordinate')}"
    return f"{made_of} of {about}, mode {thing.mode}".capitalize()


def _sizes(n_dims: int, n_outputs: int) -> str:
    return f"{count(n_dims, 'coordinate')} to {count(n_outputs, 'output')}"


def _sequences(batch: SequenceBatch) -> str:
    lengths = batch.lengths
    tokens = (
        count(int(lengths[0]), "token")
        if batch.common_length is not None
        else f"{lengths.min()} to {lengths.max()} tokens"
    )
    return f"{count(len(batch), 'sequence')} of {tokens}"
