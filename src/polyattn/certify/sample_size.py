"""How many sequences a fit needs: yau2024, Theorem 2.2, with explicit constants."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np

from polyattn.errors import (
    InvalidInput,
    InvalidType,
    require_choice,
    require_confidence,
    require_flag,
    require_integer,
)
from polyattn.form.form import Form, require_form
from polyattn.form.layout import Layout
from polyattn.form.pairs import n_features
from polyattn.quoting import shown

# What is chosen freely in the proof: how much of the second moment a sample may miss, and how large
# leverages may be before they are cut off, in units of the leverage that is declared.
MISSED = 1.0 / (1.0 + np.exp(np.linspace(8.0, -5.0, 261)))[:, None]
CUT_OFF = 0.25 + np.geomspace(0.01, 1000.0, 251)


# Numbers of coefficients of more bits are beyond float64, or their products are.
MOST_BITS = 500


def sample_size(
    n_dims: int,
    error: float,
    confidence: float = 0.99,
    n_outputs: int | None = None,
    noise: float = 1.0,
    bias: bool = False,
    form: Form | None = None,
    n_context_dims: int | None = None,
    *,
    over: str = "fresh",
    leverage: float = 10.0,
) -> int:
    """How many independent sequences bring a fit within ``error`` of the true layer.

    Over fresh sequences (``over="fresh"``), with p features, S = L p the leverage that is declared,
    and any 0 < a < 1 and R > S / 4 (the best are taken):

        N = max(R log(2 p / delta) / (b (a + (1 - a) log(1 - a))),  M(delta / 2) / ((1 - a) b)),
        b = 1 - S / (4 R),    delta = 1 - confidence.

    Over the predicted positions that are fitted (``over="fitted"``), and at least p:

        M(delta) = noise^2 (k + 2 sqrt(k t) + 2 t) / error,   k = p e,   t = -log(delta).

    Parameters
    ----------
    n_dims : int
        Coordinates per token, without the constant of ``bias``.
    error : float
        How far the fitted layer may be from the true one: mean ||F - F*||^2, over fresh sequences
        or over the positions that are fitted.
    confidence : float
        The probability with which that holds, between 0 and 1.
    n_outputs : int | None
        Target coordinates e; None for as many as ``n_dims``.
    noise : float
        Standard deviation of the noise on the targets, in their units.
    bias : bool
        Append a coordinate that is always 1 to every token.
    form : Form, optional
        The layer, instead of ``bias``; p is the number of its features.
    n_context_dims : int, optional
        Coordinates per token of the context, where tokens attend to other sequences.
    over : "fresh" | "fitted"
        Whether the error is over fresh sequences of the same kind, as in the theorem, or only over
        the positions that are fitted, which need not cover anything else.
    leverage : float
        L such that E (v psi)^2 l <= L p E (v psi)^2 for every v, where l = psi Sigma^-1 psi is the
        leverage of features psi, of mean p at most.  Of Gaussian tokens it was measured to be below
        10 for d >= 2 and three tokens or more, of Boolean tokens and equally frequent one-hot ones
        below 2; at least 1.  Rare symbols have far larger ones.

    Guarantee: for targets y = F*(X) + independent Gaussian noise, the least-squares fit satisfies
    mean ||F - F*||^2 <= error with probability at least ``confidence``: over fresh sequences, for
    N independent sequences of that leverage; over the positions that are fitted, for N of them and
    whatever sequences (docs/derivations/sample_size.md).  Both grow like (d^4 + log 1/delta) /
    error as it becomes small, as in [yau2024: Theorem 2.2].  For targets that come from no layer
    the theorem has no constant, and neither has this: ``FitResult.generalisation`` judges data.

    >>> sample_size(4, error=0.01)
    50650
    >>> sample_size(4, error=0.01, over="fitted")
    22350
    """
    features, outputs = _sizes(n_dims, n_outputs, bias, form, n_context_dims)
    if (int(features) * int(outputs)).bit_length() > MOST_BITS:
        raise InvalidInput(
            f"n_dims={shown(n_dims)} with {shown(outputs)} outputs make more coefficients than "
            "float64 can count; ask for fewer."
        )
    for name, value in (("error", error), ("noise", noise), ("leverage", leverage)):
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InvalidType(f"{name} must be a number; got {value!r}.")
        if not _is_float64(value):
            raise InvalidInput(
                f"{name} must be finite, a number that float64 can hold; got {shown(value)}."
            )
    if float(error) <= 0:
        raise InvalidInput(f"error must be a number > 0; got {error!r}.")
    if float(noise) < 0:
        raise InvalidInput(f"noise must be a standard deviation >= 0; got {noise!r}.")
    if float(leverage) < 1:
        raise InvalidInput(f"leverage is at least 1, the mean; got {leverage!r}.")
    delta = 1.0 - require_confidence(confidence)
    ratio = float(noise) * (float(noise) / float(error))
    if require_choice("over", over, ("fresh", "fitted")) == "fresh":
        needed = _for_fresh(features, outputs, ratio, delta, float(leverage) * features)
    else:
        needed = _for_fitted(features * outputs, ratio, delta)
    if not math.isfinite(needed):
        raise InvalidInput(
            f"error={error!r} beside noise={noise!r} asks for more positions than float64 can "
            "count; allow a larger error."
        )
    return max(features, math.ceil(needed))


def _is_float64(value: Real) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _sizes(
    n_dims: int, n_outputs: int | None, bias: bool, form: Form | None, n_context_dims: int | None
) -> tuple[int, int]:
    """The numbers of features and of outputs."""
    width = require_integer("n_dims", n_dims) + require_flag("bias", bias)
    features = n_features(width)
    if form is not None or n_context_dims is not None:
        if n_context_dims is not None:
            n_context_dims = require_integer("n_context_dims", n_context_dims)
        features = Layout.of(require_form(form, bias=bias), n_dims, n_context_dims).n_features
    return features, n_dims if n_outputs is None else require_integer("n_outputs", n_outputs)


def _for_fitted(freedom: int, ratio: float, delta: float) -> float:
    """By the tail of a chi-square variable (Laurent and Massart 2000, Lemma 1)."""
    t = -math.log(delta)
    return ratio * (freedom + 2.0 * math.sqrt(freedom * t) + 2.0 * t)


def _for_fresh(p: int, n_outputs: int, ratio: float, delta: float, declared: float) -> float:
    """By a matrix Chernoff bound for leverages that are cut off, and the above."""
    kept = 1.0 - 1.0 / (4.0 * CUT_OFF)
    exponent = MISSED + (1.0 - MISSED) * np.log1p(-MISSED)
    of_inputs = declared * CUT_OFF * math.log(2.0 * p / delta) / (kept * exponent)
    of_noise = _for_fitted(p * n_outputs, ratio, delta / 2.0) / ((1.0 - MISSED) * kept)
    return float(np.min(np.maximum(of_inputs, of_noise)))
