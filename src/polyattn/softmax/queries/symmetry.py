"""Whether effects are those of softmax attention alone: moves forwards and backwards add up.

At a query token x' the effect of one token moved by delta is sum_i sigmoid(z_i) delta V_i with z_i
linear in delta, and sigmoid(z) + sigmoid(-z) = 1.  Hence, whatever the heads and their sizes,

    effect(x', delta) - effect(x', -delta) = delta sum_i V_i,

which one-token sequences give as delta S.  A linear map R of the token itself that is added to
attention, the identity of a residual connection for one, is in S and not on the left: what is
missing there is delta R.  Positions and weights that are no softmax break the equation, too.
"""

from __future__ import annotations

import numpy as np

from polyattn.softmax.queries.outcomes import Stopped
from polyattn.softmax.queries.pairs import Pairs, unit_rows

# Random pairs that are moved forwards and backwards.
N_MOVES = 4

# What may be missing, relative to the effects, and in errors of an effect.
TOLERANCE, ERRORS = 1e-3, 100

ADDED = "Give the attention alone, or subtract the input: lambda X: oracle(X) - X."


def require_symmetry(pairs: Pairs) -> None:
    """Raise Stopped, in words of what is wrong, unless moves forwards and backwards add up.

    Its tokens are no part of the random ones of the run, which stay as they are.
    Cost: 2 N_MOVES queries.
    """
    rng = np.random.default_rng(0)
    points = pairs.point_size * unit_rows(rng, N_MOVES, pairs.n_dims)
    deltas = pairs.delta_size * unit_rows(rng, N_MOVES, pairs.n_dims)
    # Calibration may have seen much larger outputs, whose errors are not those of these.
    before, pairs.output_size = pairs.output_size, 0.0
    both = pairs.effect(np.concatenate([points, points]), np.concatenate([deltas, -deltas]))
    whole = deltas @ pairs.total.value
    missing = whole - (both[:N_MOVES] - both[N_MOVES:])
    size = max(float(np.abs(whole).max()), float(np.abs(both).max()))
    allowed = TOLERANCE * size + ERRORS * pairs.error
    pairs.output_size = max(before, pairs.output_size)
    if float(np.abs(missing).max()) <= allowed:
        return
    if float(np.abs(both).max()) <= allowed:
        raise Stopped(
            "not_attention",
            "There is no attention: the last token is answered as if it were alone, whatever the "
            "other tokens are.",
        )
    if missing.shape == deltas.shape and float(np.abs(missing - deltas).max()) <= allowed:
        raise Stopped(
            "not_attention",
            "The oracle adds its input to attention (a residual connection): one token alone is "
            "answered by x more than the values that attention moves.",
            ADDED,
        )
    part = float(np.linalg.norm(missing)) / (float(np.linalg.norm(whole)) or size)
    raise Stopped(
        "not_attention",
        "This is not softmax attention alone: what two tokens show of the sum of values deviates "
        f"by {part:.1e} of its size from what one token shows. A map of the token itself may be "
        "added, positions may matter, or weights may be no softmax.",
    )
