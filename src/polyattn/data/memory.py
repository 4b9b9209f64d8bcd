"""Associative memory: look up the value that was stored with a key."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyattn.data.recovery import Planted
from polyattn.errors import require_flag, require_integer, require_number
from polyattn.model import LinearAttention
from polyattn.numerics.random_state import RandomState, require_generator


def associative_memory(
    n_sequences: int,
    n_keys: int,
    unitary: float = 0.95,
    noise: float = 0.0,
    fill: float = 1.0,
    random_state: RandomState = 0,
    *,
    own_token: bool = True,
) -> Planted[LinearAttention]:
    """Sequences that store d keys with d values and then ask for one of them.

    A sequence has d + 1 tokens of 2d coordinates, a key half and a value half:

        X = [ k_1  v_1 ]
            [   ...    ]        q = k_i for a random i,     zeta ~ N(0, fill^2 I)
            [ k_d  v_d ]
            [ q    zeta]

    The one head of the answer compares keys and returns values, A = [[I, 0], [0, 0]],
    V = [0; I], at the last position:

        y = sum_t <q, k_t> v_t + <q, q> zeta  (+ noise * N(0, 1)).

    This is the paper's layer applied to all tokens, the last one included [yau2024: equation 5].
    For orthogonal keys it is v_i + zeta: the stored value, and what the last token held, since
    that attends to itself too.  With ``fill=0`` the target is v_i itself, but then no data say what
    the layer does with a filled value half, and they do not determine it.

    The paper prints the sum over the d stored pairs alone [yau2024: equation 14], which is
    ``own_token=False``:

        y = sum_t <q, k_t> v_t                 (+ noise * N(0, 1)).

    That is not the output of ``layer``: ``unmodelled`` = -<q, q> zeta.  With Gaussian keys among
    several no layer of this form gives it, the task is agnostic, and its best layer is another one;
    with orthogonal keys alone, one key, or ``fill=0`` some other layer does.

    Parameters
    ----------
    n_sequences : int
    n_keys : int
        d, the number of keys and the coordinates of each.
    unitary : float
        Part of the sequences (rounded to whole ones, in random order) whose keys form a random
        orthogonal matrix, and so do the values; in the others all entries are N(0, 1)
        [yau2024: experiments].
    noise : float
        Standard deviation of the noise on the targets, in their units.
    fill : float
        Standard deviation of zeta, the value half of the last token.
    random_state : int, Generator or None
    own_token : bool
        Whether targets hold <q, q> zeta, the last token's own term (equation 5), or leave it out
        (equation 14).  X, the layer and the noise are the same for both.

    Returns
    -------
    Planted
        X (n_sequences, d + 1, 2d), Y (n_sequences, d), and the layer in mode ``last``.

    Guarantee: with ``unitary < 1`` the second moment of the features is positive definite once
    there are enough sequences; with ``unitary=1`` it never is (rank 248 of 288 for d = 4).
    """
    n_sequences, d = require_integer("n_sequences", n_sequences), require_integer("n_keys", n_keys)
    unitary = require_number("unitary", unitary, most=1.0)
    noise, fill = require_number("noise", noise), require_number("fill", fill)
    own_token = require_flag("own_token", own_token)
    rng = require_generator(random_state)
    keys, values = rng.standard_normal((2, n_sequences, d, d))
    chosen = rng.permutation(n_sequences)[: round(unitary * n_sequences)]
    keys[chosen], values[chosen] = _orthogonal(keys[chosen]), _orthogonal(values[chosen])
    asked = rng.integers(d, size=n_sequences)
    X = np.empty((n_sequences, d + 1, 2 * d))
    X[:, :d, :d] = keys
    X[:, :d, d:] = values
    X[:, d, :d] = keys[np.arange(n_sequences), asked]
    X[:, d, d:] = fill * rng.standard_normal((n_sequences, d))
    task = Planted.of(lookup_layer(d), X, noise, rng)
    if own_token:
        return task
    missing = -np.sum(X[:, d, :d] ** 2, axis=1)[:, None] * X[:, d, d:]
    return replace(task, Y=np.asarray(task.Y) + missing, unmodelled=missing)


def lookup_layer(n_keys: int) -> LinearAttention:
    """The one-head layer that compares the first halves of tokens and returns the second."""
    identity, zero = np.eye(n_keys), np.zeros((n_keys, n_keys))
    attn = np.block([[identity, zero], [zero, zero]])
    return LinearAttention(attn, np.concatenate([zero, identity]), mode="last")


def _orthogonal(gaussian: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthogonal matrices, uniform (Haar), from Gaussian ones (B, d, d) [Mezzadri 2007]."""
    Q, R = np.linalg.qr(gaussian)
    # LAPACK's choice of signs is not uniform; those of the diagonal of R make it so.
    return Q * np.sign(np.diagonal(R, axis1=1, axis2=2))[:, None, :]
