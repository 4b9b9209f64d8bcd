"""How many predicted positions a fit needs: yau2024, Theorem 2.2, with explicit constants."""

from __future__ import annotations

import math
from numbers import Real

from polyattn.errors import InvalidInput, InvalidType, require_flag, require_integer
from polyattn.form.form import Form, require_form
from polyattn.form.layout import Layout
from polyattn.form.pairs import n_features


def sample_size(
    n_dims: int,
    error: float,
    confidence: float = 0.99,
    n_outputs: int | None = None,
    noise: float = 1.0,
    bias: bool = False,
    form: Form | None = None,
    n_context_dims: int | None = None,
) -> int:
    """How many predicted positions make the excess risk at most ``error``.

        N = ceil(noise^2 (k + 2 sqrt(k t) + 2 t) / error),   k = p e,   t = -log(1 - confidence),

    and at least p, the number of features.

    Parameters
    ----------
    n_dims : int
        Coordinates per token, without the constant of ``bias``.
    error : float
        How far the fitted layer may be from the true one: mean ||F - F*||^2 over the positions.
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

    Guarantee: for targets y = F*(X) + independent Gaussian noise and whatever sequences, the
    least-squares fit satisfies mean ||F - F*||^2 <= error over the N positions that were fitted,
    with probability at least ``confidence`` (docs/derivations/sample_size.md).  N grows like
    (d^4 + log 1/delta) / error, as in [yau2024: Theorem 2.2].  For targets that come from no
    layer the theorem has no constant, and neither has this.

    >>> sample_size(4, error=0.1)
    2235
    """
    width = require_integer("n_dims", n_dims) + require_flag("bias", bias)
    features = n_features(width)
    if form is not None or n_context_dims is not None:
        if n_context_dims is not None:
            n_context_dims = require_integer("n_context_dims", n_context_dims)
        features = Layout.of(require_form(form, bias=bias), n_dims, n_context_dims).n_features
    outputs = n_dims if n_outputs is None else require_integer("n_outputs", n_outputs)
    for name, value in (("error", error), ("noise", noise), ("confidence", confidence)):
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InvalidType(f"{name} must be a number; got {value!r}.")
        if not math.isfinite(value):
            raise InvalidInput(f"{name} must be finite; got {value!r}.")
    target, deviation, chance = float(error), float(noise), float(confidence)
    if target <= 0:
        raise InvalidInput(f"error must be a number > 0; got {error!r}.")
    if deviation < 0:
        raise InvalidInput(f"noise must be a standard deviation >= 0; got {noise!r}.")
    if not 0 < chance < 1:
        raise InvalidInput(f"confidence must lie between 0 and 1, exclusively; got {confidence!r}.")
    freedom = features * outputs
    t = -math.log1p(-chance)
    needed = deviation * deviation * (freedom + 2.0 * math.sqrt(freedom * t) + 2.0 * t) / target
    if not math.isfinite(needed):
        raise InvalidInput(
            f"error={error!r} beside noise={noise!r} asks for more positions than float64 can "
            "count; allow a larger error."
        )
    return max(features, math.ceil(needed))
