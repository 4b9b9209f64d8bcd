"""A layer's output by its formula, position by position and token by token: what a witness shows.

For a predicted position t

    y_t = sum_h sum_s w_h(t, s) (q_t^T A_h k_s) V_h^T v_s  +  W^T q_t  +  c,

with q_t = query(x_t), k_s = key(z_s), v_s = value(z_s), each with a last number 1 where there is a
bias.  The tokens z are those of the sequence itself, or of the context.  Nothing of the fast
forward passes is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.model import LinearAttention


def literal_forward(
    layer: LinearAttention, X: NDArray, context: NDArray | None = None
) -> NDArray[np.float64]:
    """The outputs (n, e) of a layer on X (n, d), and in mode "last" only that of the last, (e,)."""
    form = {each.name: getattr(layer.form, each.name) for each in fields(layer.form)}
    queries = seen(X, form["query"], form["bias"])
    keys = seen(X if context is None else context, form["key"], form["bias"])
    values = seen(X if context is None else context, form["value"], form["bias"])
    outputs = []
    for t in predicted(X, form):
        y = np.zeros(layer.n_outputs)
        positions = attended(t, len(keys), form, context is not None)
        divisor = len(positions) if form["mean"] else 1
        for h in range(layer.n_heads):
            scale = 0 if layer.head_scales is None else int(layer.head_scales[h])
            for s in positions:
                score = queries[t] @ layer.attn[h] @ keys[s]
                share = weights(t, s, form)[scale] / divisor
                y = y + share * score * (values[s] @ layer.value[h])
        if layer.skip is not None:
            y = y + queries[t] @ layer.skip
        if layer.intercept is not None:
            y = y + layer.intercept
        outputs.append(y)
    return outputs[-1] if form["mode"] == "last" else np.array(outputs)


def predicted(X: NDArray, form: Mapping[str, Any]) -> list[int]:
    """The positions that have an output."""
    return [len(X) - 1] if form["mode"] == "last" else list(range(len(X)))


def attended(t: int, n_tokens: int, form: Mapping[str, Any], is_context: bool) -> list[int]:
    """The tokens that position t attends to, of ``n_tokens``."""
    found = []
    for s in range(n_tokens):
        if form["mode"] == "causal" or not is_context:
            if form["mode"] != "full" and s > t:
                continue
            if not form["include_query"] and s == t:
                continue
            if form["window"] is not None and t - s >= form["window"]:
                continue
        found.append(s)
    return found


def weights(t: int, s: int, form: Mapping[str, Any]) -> list[Any]:
    """w(t, s) of each scale, for a token s that position t attends to.

    With a mean, sums are divided by the number of tokens attended to besides.
    """
    if form["lags"] is not None:
        found = [1 if t - s == lag else 0 for lag in own_lags(form)]
        if form["window"] is None or form["window"] > form["lags"]:
            found.append(1 if t - s >= form["lags"] else 0)
    elif form["decay"] is None:
        found = [1]
    else:
        found = [decay ** (t - s) for decay in decays(form)]
    return found


def own_lags(form: Mapping[str, Any]) -> list[int]:
    """The distances that have a scale of their own, among those that are attended to."""
    found = []
    for lag in range(form["lags"]):
        if lag == 0 and not form["include_query"]:
            continue
        if form["window"] is not None and lag >= form["window"]:
            continue
        found.append(lag)
    return found


def decays(form: Mapping[str, Any]) -> list[Any]:
    """One decay for each scale."""
    return list(form["decay"]) if np.ndim(form["decay"]) else [form["decay"]]


def seen(tokens: NDArray, given: Any, bias: bool) -> list[NDArray]:
    """What a map sees of each token, and a last number 1 with a bias."""
    if given is None:
        rows = [list(token) for token in tokens]
    elif callable(given):
        rows = [list(given(token[None])[0]) for token in tokens]
    elif np.ndim(given) == 2:
        rows = [list(token @ given) for token in tokens]
    else:
        rows = [[token[j] for j in coordinates(given, len(token))] for token in tokens]
    return [np.array([*row, 1] if bias else row) for row in rows]


def coordinates(given: Any, n_dims: int) -> list[int]:
    """The coordinates that a list or a slice names; negative ones count from the end."""
    return list(range(n_dims)[given]) if isinstance(given, slice) else [j % n_dims for j in given]
