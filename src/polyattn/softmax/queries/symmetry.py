"""Whether effects are those of softmax attention alone: moves forwards and backwards add up.

At a query token x' the effect of one token moved by delta is sum_i sigmoid(z_i) delta V_i with z_i
linear in delta, and sigmoid(z) + sigmoid(-z) = 1.  Hence, whatever the heads and their sizes,

    effect(x', delta) - effect(x', -delta) = delta sum_i V_i,

which one-token sequences give as delta S.  A linear map R of the token itself that is added to
attention, the identity of a residual connection for one, is in S and not on the left: what is
missing there is delta R.  Weights that are no softmax break the equation, too, and so do positions,
which show in the order of tokens before any equation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.outcomes import Stopped
from polyattn.softmax.queries.pairs import Pairs, unit_rows
from polyattn.softmax.queries.precision import ROUGH
from polyattn.softmax.queries.structure import Restructured, Surroundings

# Random pairs that are moved forwards and backwards.
N_MOVES = 4

# What may be missing, relative to the effects, and in errors of an effect, fewer of rough answers.
TOLERANCE, ERRORS, ROUGH_ERRORS = 1e-3, 100, 8

# Tokens between the two places at which a moved token is tried, and what may be left.
N_BETWEEN, IN_ORDER = 16, 1e-6

# Moves so many times larger leave a token with all the weight, or with none.
SATURATED = 2.0**30

# Nothing lies around attention, and nothing is to be found.
ALONE = Surroundings(residual=False, normalisation=None, rotary=False)


def require_symmetry(pairs: Pairs, structure: Surroundings = ALONE) -> None:
    """Raise Stopped, in words of what is wrong, unless moves forwards and backwards add up.

    Raises Restructured where a residual connection or positions explain it and were to be found.
    Its tokens are no part of the random ones of the run, which stay as they are.
    Cost: 2 N_MOVES queries, and as many of N_BETWEEN + 2 tokens.
    """
    rng = np.random.default_rng(0)
    points = pairs.point_size * unit_rows(rng, N_MOVES, pairs.n_dims)
    deltas = pairs.delta_size * unit_rows(rng, N_MOVES, pairs.n_dims)
    if structure.turns and pairs.bias:
        # Of large moves only the sign matters, whatever positions and biases add to logits.
        deltas *= SATURATED
    if np.isfinite(pairs.oracle.token_limit):
        # At a right angle both moves stay inside.
        along = np.einsum("qd,qd->q", points, deltas) / np.sum(deltas**2, axis=1)
        points = points - along[:, None] * deltas
    # Calibration may have seen much larger outputs, whose errors are not those of these.
    before, pairs.output_size = pairs.output_size, 0.0
    forwards, backwards = (pairs.forward_effect(points, sign * deltas) for sign in (1, -1))
    whole = deltas @ pairs.total.value
    missing = whole - (forwards - backwards)
    moved = max(float(np.abs(forwards).max()), float(np.abs(backwards).max()))
    size, error = max(float(np.abs(whole).max()), moved), _errors(pairs) * pairs.error
    pairs.output_size = max(before, pairs.output_size)
    if not structure.turns:
        _require_no_positions(pairs, structure, points, deltas)
    exponent = pairs.oracle.token_exponent - (pairs.oracle.answer_exponent or 0)
    inputs = np.ldexp(deltas, exponent)
    if structure.found is None and missing.shape == inputs.shape:
        _require_no_input(missing, inputs, error, moved, structure)
    if float(np.abs(missing).max()) <= TOLERANCE * size + error:
        return
    if moved <= error:
        raise Stopped(
            "not_attention",
            "There is no attention: the last token is answered as if it were alone, whatever the "
            "other tokens are.",
        )
    part = float(np.linalg.norm(missing)) / (float(np.linalg.norm(whole)) or size)
    raise Stopped(
        "not_attention",
        "This is not softmax attention alone: what two tokens show of the sum of values deviates "
        f"by {part:.1e} of its size from what one token shows. A map of the token itself may be "
        "added, positions may matter, or weights may be no softmax.",
    )


def _require_no_input(
    missing: NDArray, inputs: NDArray, error: float, moved: float, structure: Surroundings
) -> None:
    """Raise where what is missing is the input itself, added or subtracted."""
    size = float(np.abs(inputs).max())
    sign = -1.0 if structure.adds_input else 1.0
    apart = float(np.abs(missing - sign * inputs).max())
    if size <= 3 * error or apart > TOLERANCE * size + error:
        return
    if structure.adds_input:
        raise Stopped(
            "other_structure",
            "The oracle does not add its input: there is no residual connection.",
            "Leave residual out, or call again with residual=False.",
        )
    if moved <= error:
        raise Stopped(
            "not_attention",
            "The answer is the token itself and a constant: attention has no visible effect.",
            "See that the attention, and not a residual connection around it alone, is asked.",
        )
    if structure.residual == "auto":
        raise Restructured(structure, residual=True)
    raise Stopped(
        "other_structure",
        "The oracle adds its input to attention (a residual connection): one token alone is "
        "answered by x more than the values that attention moves.",
        "Leave residual out, or call again with residual=True.",
    )


def positions_matter(pairs: Pairs, points: NDArray, deltas: NDArray) -> bool:
    """Whether it makes a difference where the moved token stands.

    Cost: two queries of N_BETWEEN + 2 tokens for each of the points (Q, d).
    """
    X = np.repeat(points[:, None, :], N_BETWEEN + 2, axis=1)
    far, near = X.copy(), X
    far[:, 0] += deltas
    near[:, -2] += deltas
    answers = pairs.oracle(np.concatenate([far, near]))
    first, second = np.split(answers, 2)
    effects = answers - np.tile(points @ pairs.total.value + pairs.total.bias, (2, 1))
    error = max(pairs.total.noise * float(np.abs(answers).max()), pairs.floor)
    allowed = IN_ORDER * float(np.abs(effects).max()) + _errors(pairs) * error
    return float(np.abs(first - second).max()) > allowed


def require_positions(pairs: Pairs) -> None:
    """Raise Stopped where the order of tokens makes no difference, although it should."""
    rng = np.random.default_rng(0)
    size = min(np.sqrt(pairs.point_size * pairs.delta_size), 0.45 * pairs.oracle.token_limit)
    points, deltas = (size * unit_rows(rng, N_MOVES, pairs.n_dims) for _ in range(2))
    if not positions_matter(pairs, points, deltas):
        raise Stopped(
            "other_structure",
            "The order of the tokens before the last one makes no difference: there are no "
            "rotary positions.",
            "Leave rotary out, or call again with rotary=None.",
        )


def _require_no_positions(
    pairs: Pairs, structure: Surroundings, points: NDArray, deltas: NDArray
) -> None:
    """Raise Restructured or Stopped, as was asked for, where the order of tokens matters."""
    if not positions_matter(pairs, points, deltas):
        return
    if structure.rotary is False:
        raise Stopped(
            "other_structure",
            "The order of the tokens before the last one matters: positions are part of attention.",
            "Leave rotary out, or call again with rotary=True, if positions turn queries and keys.",
        )
    raise Restructured(structure, rotary=True, seen=True)


def _errors(pairs: Pairs) -> int:
    """How many errors of an effect may be missing."""
    return ROUGH_ERRORS if pairs.total.noise > ROUGH else ERRORS
