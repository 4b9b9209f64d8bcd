"""The context: other sequences that tokens attend to, checked beside the tokens."""

from __future__ import annotations

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.form.form import Form
from polyattn.form.layout import Layout
from polyattn.quoting import counted
from polyattn.sequences import SequenceBatch, Sequences, as_batch


def as_context(
    context: Sequences | None,
    batch: SequenceBatch,
    form: Form,
    layout: Layout | None = None,
    keep_integers: bool = False,
) -> SequenceBatch | None:
    """The context as a batch with one sequence for each of ``batch``; ``layout`` if it is known."""
    if context is None:
        if layout is not None and layout.n_context_dims is not None:
            raise InvalidInput(
                "this layer attends to other sequences: give them as context, one for each of X."
            )
        return None
    if layout is not None and layout.n_context_dims is None:
        raise InvalidInput("this layer attends to the tokens of X themselves; it takes no context.")
    n_dims = None if layout is None else layout.n_context_dims
    attended = as_batch(context, "context", n_dims, keep_integers)
    if len(attended) != len(batch):
        raise InvalidInput(
            f"X has {counted(len(batch), 'sequence')} but context has {len(attended)}; each "
            "sequence of X attends to one of context."
        )
    if form.mode == "causal" and np.any(attended.lengths != batch.lengths):
        i = int(np.argmax(attended.lengths != batch.lengths))
        raise InvalidInput(
            f"sequence {i} has {counted(int(batch.lengths[i]), 'token')} in X but "
            f"{attended.lengths[i]} in context; in mode 'causal' token t attends to the tokens up "
            "to t of the context, so that both need the same length. Use mode 'last' or 'full'."
        )
    return attended
