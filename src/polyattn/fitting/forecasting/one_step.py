"""Errors of a layer over one step, on sequences whose next tokens are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyattn.form.layout import Layout
from polyattn.model.forward import coef_forward
from polyattn.numerics.scaling import exponent_for, largest_magnitude, scaled
from polyattn.sequences import SequenceBatch

# Stretches of errors that are followed along a forecast.
N_STRETCHES = 32


def one_step_errors(
    layout: Layout,
    coef: NDArray,
    batch: SequenceBatch,
    predicted: NDArray[np.intp],
    increments: bool,
) -> list[NDArray[np.float64]]:
    """What the layer predicts less what follows, (k, e), of each sequence that shows it.

    In mode causal the second half of each sequence counts, where the first tokens, which see few
    before them, do not.  In mode last all windows inside the sequences; without a window none.
    """
    form, lengths = layout.form, batch.lengths
    if form.mode == "last":
        if form.window is None:
            return []
        firsts = np.full(len(batch), min(form.window, int(lengths.max())) - 1)
        layout = Layout.of(replace(form, mode="causal"), layout.n_dims)
    else:
        firsts = (lengths - 1) // 2
    if not np.any(firsts < lengths - 1):
        return []
    power = exponent_for(largest_magnitude(coef)) or 0
    outputs = coef_forward(batch, scaled(coef, -power), layout, None, power)
    errors = []
    for first, start, stop in zip(firsts, batch.offsets, batch.offsets[1:], strict=False):
        if start + first >= stop - 1:
            continue
        tokens = np.asarray(batch.values[start + first : stop], dtype=np.float64)[:, predicted]
        follows = tokens[1:] - tokens[:-1] if increments else tokens[1:]
        errors.append(outputs[start + first : stop - 1] - follows)
    return errors


def stretches(
    errors: list[NDArray[np.float64]], n_steps: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Stretches (M, n_steps, e) of errors that follow each other, as they did in the sequences.

    Errors of neighbouring steps are alike, and add up otherwise than independent ones.  Where a
    sequence ends, a stretch goes on anywhere.
    """
    flat = np.concatenate(errors)
    last = np.cumsum([len(each) for each in errors]) - 1
    ends = np.zeros(len(flat), dtype=bool)
    ends[last] = True
    places = np.empty((N_STRETCHES, n_steps), dtype=np.intp)
    places[:, 0] = rng.integers(len(flat), size=N_STRETCHES)
    for step in range(1, n_steps):
        before = places[:, step - 1]
        anywhere = rng.integers(len(flat), size=N_STRETCHES)
        places[:, step] = np.where(ends[before], anywhere, before + 1)
    return flat[places]
