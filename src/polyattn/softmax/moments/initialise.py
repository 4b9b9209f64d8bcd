"""Heads from moments: correlate, unfold, separate, and descend inside the span."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from polyattn.softmax.examples import Examples
from polyattn.softmax.moments.first_order import correlate, unfold
from polyattn.softmax.moments.frame import frame_of
from polyattn.softmax.moments.separation import separate
from polyattn.softmax.polish import Projection, enough, polish, project
from polyattn.softmax.recorder import Note, Recorder

Matrix = NDArray[np.float64]

# First-order moments see saturated logits too small: factors by which heads are enlarged.
GAINS = (1.0, 1.6, 2.5)

# Random combinations of the span that compete with the separated heads, and their sizes.
N_MIXTURES, SIZES = 4, (0.5, 2.0)

# Steps of the descent inside the span.
N_STEPS = 12

# Scalar targets for each unknown when starts are compared and descend inside the span.
EQUATIONS = 8.0


@dataclass(frozen=True)
class Initialisation:
    """Heads to start from.

    attn : (m, d, d)
    singular_values : of the unfolded moment tensor, largest first; they drop after m
    span : (s, d, d), orthonormal, s <= m: where the heads were looked for
    """

    attn: Matrix
    singular_values: Matrix
    span: Matrix


def initialise(
    examples: Examples,
    n_heads: int,
    rng: np.random.Generator,
    recorder: Recorder[Projection] | None = None,
) -> Initialisation:
    """Heads (m, d, d) near those that made the examples, from low-order moments.

    The tokens should be independent draws of a distribution without odd moments; then the span
    is right up to a bias of third order in the logits.  Other tokens make the start worse, not
    wrong: it is only a start.

    Cost: O(rows d^3 e + d^6) and a few steps of descent on some of the examples.
    """
    recorder = recorder or Recorder()
    with recorder.phase("moments") as note:
        frame = frame_of(examples)
        first_order = correlate(examples, frame)
        spans = unfold(first_order, n_heads, rng)
        _note_span(note, spans.singular_values, n_heads, first_order.explained)
    with recorder.phase("separation") as note:
        few = enough(examples, n_heads, EQUATIONS)
        coordinates = separate(examples, frame, spans, rng)
        basis = frame.heads(spans.attn)
        starts = _starts(coordinates, basis, n_heads, rng)
        errors = [project(few, start).error for start in starts]
        chosen = int(np.argmin(errors))
        _note_separation(note, coordinates, chosen < len(GAINS), errors[chosen])
    within = _orthonormal(basis)
    attn = starts[chosen]
    if len(within):
        with recorder.phase("span descent") as note:
            inside = polish(few, attn, N_STEPS, within=within)
            attn = inside.attn
            note.say(
                f"descent inside the span leaves {inside.error:.2g} of the targets",
                steps=len(inside.errors) - 1,
                error=inside.error,
            )
    return Initialisation(attn, spans.singular_values, within)


def _starts(
    coordinates: Matrix | None, basis: Matrix, n_heads: int, rng: np.random.Generator
) -> list[Matrix]:
    """Separated heads at several gains, and mixtures of the span; the first are separated."""
    size, width = len(basis), basis.shape[1]
    starts = []
    if coordinates is not None:
        extra = rng.standard_normal((n_heads - size, size))
        every = np.concatenate([coordinates, extra])
        starts = [np.tensordot(gain * every, basis, axes=1) for gain in GAINS]
    for scale in SIZES if size else ():
        mixtures = scale * rng.standard_normal((N_MIXTURES, n_heads, size))
        starts += [np.tensordot(mixture, basis, axes=1) for mixture in mixtures]
    if not starts:
        starts = [rng.standard_normal((n_heads, width, width)) / width]
    return starts


def _orthonormal(basis: Matrix) -> Matrix:
    """An orthonormal basis (s, d, d) of the span of matrices."""
    if not len(basis):
        return basis
    factor, triangle, _ = qr(basis.reshape(len(basis), -1).T, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    kept = sizes > 1e-10 * sizes.max()
    return factor[:, kept].T.reshape(-1, *basis.shape[1:])


def _note_span(note: Note, sigma: Matrix, n_heads: int, explained: float) -> None:
    drop = None
    if len(sigma) > n_heads and sigma[n_heads] > 0.0:
        drop = float(sigma[n_heads - 1] / sigma[n_heads])
    sentence = f"linear functions explain {explained:.0%} of the targets' power"
    if drop is not None:
        sentence += f"; singular values drop {drop:.1f}x after {n_heads}"
    note.say(sentence, explained=explained, singular_values=sigma.tolist(), drop=drop)


def _note_separation(note: Note, coordinates: Matrix | None, separated: bool, error: float) -> None:
    if coordinates is None:
        sentence = "cumulants do not separate the heads; the best of random mixtures was taken"
    elif separated:
        sentence = "heads separated by joint diagonalisation of second and third cumulants"
    else:
        sentence = "separated heads were worse than a random mixture, which was taken"
    note.say(sentence, separated=coordinates is not None and separated, error=error)
