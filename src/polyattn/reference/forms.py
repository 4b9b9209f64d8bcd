"""Attention of every form, position by position and token by token.

For a predicted position t

    y_t = sum_h sum_s w_h(t, s) (q_t^T A_h k_s) V_h^T v_s  +  W^T q_t  +  c,

with q_t = query(x_t), k_s = key(z_s), v_s = value(z_s), each with a last number 1 where there is a
bias.  The tokens z are those of the sequence itself, or of the context.

A form is a dictionary with the fields of ``polyattn.Form`` that differ from their defaults.  A map
is None, a list of coordinates, a slice, a matrix (d, r), or a function of tokens (n, d).  Tokens
and decays may be fractions, in arrays of objects: summaries are then exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

DEFAULTS: dict[str, Any] = {
    "mode": "last",
    "include_query": True,
    "mean": False,
    "window": None,
    "decay": None,
    "lags": None,
    "query": None,
    "key": None,
    "value": None,
    "skip": False,
    "intercept": False,
    "bias": False,
}


def forward(
    attn: NDArray,
    value: NDArray,
    X: NDArray,
    form: Mapping[str, Any],
    context: NDArray | None = None,
    head_scales: NDArray | None = None,
    skip: NDArray | None = None,
    intercept: NDArray | None = None,
) -> NDArray:
    """The outputs (n, e) of a layer, and in mode "last" only that of the last token, (e,).

    attn (H, r, keys), value (H, values, e), X (n, d), context (n_context, d_context), skip (r, e),
    intercept (e,); head_scales (H,) says which scale of distances each head uses.
    """
    form = {**DEFAULTS, **form}
    queries = seen(X, form["query"], form["bias"])
    keys = seen(X if context is None else context, form["key"], form["bias"])
    values = seen(X if context is None else context, form["value"], form["bias"])
    outputs = []
    for t in predicted(X, form):
        y = np.zeros(value.shape[2])
        positions = attended(t, len(keys), form, context is not None)
        divisor = len(positions) if form["mean"] else 1
        for h in range(len(attn)):
            scale = 0 if head_scales is None else int(head_scales[h])
            for s in positions:
                score = queries[t] @ attn[h] @ keys[s]
                y = y + weights(t, s, form)[scale] * score * (values[s] @ value[h]) / divisor
        if skip is not None:
            y = y + queries[t] @ skip
        if intercept is not None:
            y = y + intercept
        outputs.append(y)
    return outputs[-1] if form["mode"] == "last" else np.array(outputs)


def summary(
    X: NDArray, t: int, form: Mapping[str, Any], context: NDArray | None = None
) -> tuple[NDArray, NDArray]:
    """(S, u) of position t: all that the layer sees, shapes (m,) and (r,).

    S holds sum_s w(t, s) v_s[c] k_s[b] for each scale and each of ``pairs``, then a constant 1
    with a skip or an intercept; u is the query, then a constant 1 with an intercept.
    """
    form = {**DEFAULTS, **form}
    tokens = X if context is None else context
    keys = seen(tokens, form["key"], form["bias"])
    values = seen(tokens, form["value"], form["bias"])
    positions = attended(t, len(tokens), form, context is not None)
    w = {s: weights(t, s, form) for s in positions}
    S = []
    for scale in range(n_scales(form)):
        for c, b in pairs(form, tokens.shape[1]):
            total = 0
            for s in positions:
                total = total + w[s][scale] * (values[s][c] * keys[s][b])
            S.append(total / len(positions) if form["mean"] and positions else total)
    u = list(seen(X, form["query"], form["bias"])[t])
    if form["skip"] or form["intercept"]:
        S.append(1)
    if form["intercept"]:
        u.append(1)
    return np.array(S), np.array(u)


def summaries(
    X: NDArray, form: Mapping[str, Any], context: NDArray | None = None
) -> list[tuple[NDArray, NDArray]]:
    """``summary`` of all predicted positions of a sequence."""
    return [summary(X, t, form, context) for t in predicted(X, {**DEFAULTS, **form})]


def features(S: NDArray, u: NDArray, form: Mapping[str, Any]) -> NDArray:
    """The products S[i] u[l] that are features, (p,).

    The constant of an intercept is multiplied with the other constant alone, and that of S with
    the query only if there is a skip.
    """
    form = {**DEFAULTS, **form}
    constant_sum = len(S) - 1 if form["skip"] or form["intercept"] else None
    constant_query = len(u) - 1 if form["intercept"] else None
    psi = []
    for i in range(len(S)):
        for k in range(len(u)):
            if k == constant_query:
                is_feature = i == constant_sum
            else:
                is_feature = i != constant_sum or form["skip"]
            if is_feature:
                psi.append(S[i] * u[k])
    return np.array(psi)


def coefficients(
    attn: NDArray,
    value: NDArray,
    n_dims: int,
    form: Mapping[str, Any],
    head_scales: NDArray | None = None,
    skip: NDArray | None = None,
    intercept: NDArray | None = None,
) -> NDArray:
    """The folded coefficients (e, m, r): y[a] = sum_(i, l) coefficients[a, i, l] S[i] u[l].

    n_dims : the coordinates of the tokens attended to
    """
    form = {**DEFAULTS, **form}
    found = pairs(form, n_dims)
    key_labels = labels(form["key"], n_dims, form["bias"])
    value_labels = labels(form["value"], n_dims, form["bias"])
    place = {frozenset([value_labels[c], key_labels[b]]): i for i, (c, b) in enumerate(found)}
    n_products = n_scales(form) * len(found)
    n_sums = n_products + (form["skip"] or form["intercept"])
    coef = np.zeros((value.shape[2], n_sums, attn.shape[1] + form["intercept"]))
    for h in range(len(attn)):
        first = len(found) * (0 if head_scales is None else int(head_scales[h]))
        for c, b in np.ndindex(len(value_labels), len(key_labels)):
            i = first + place[frozenset([value_labels[c], key_labels[b]])]
            for a, k in np.ndindex(value.shape[2], attn.shape[1]):
                coef[a, i, k] += value[h, c, a] * attn[h, k, b]
    if skip is not None:
        coef[:, n_products, : attn.shape[1]] = skip.T
    if intercept is not None:
        coef[:, -1, -1] = intercept
    return coef


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


def n_scales(form: Mapping[str, Any]) -> int:
    """How many sets of heads weigh distances differently."""
    if form["lags"] is not None:
        rest = form["window"] is None or form["window"] > form["lags"]
        return len(own_lags(form)) + rest
    return 1 if form["decay"] is None else len(decays(form))


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


def labels(given: Any, n_dims: int, bias: bool) -> list[Hashable]:
    """A name for each number that a map sees; numbers of the same name are always equal."""
    found: list[Hashable]
    if given is None:
        found = [("coordinate", j) for j in range(n_dims)]
    elif callable(given):
        found = [(given, i) for i in range(len(given(np.ones((1, n_dims)))[0]))]
    elif np.ndim(given) == 2:
        content = tuple(np.asarray(given).ravel().tolist())
        found = [(content, i) for i in range(np.shape(given)[1])]
    else:
        found = [("coordinate", j) for j in coordinates(given, n_dims)]
    return [*found, "constant"] if bias else found


def pairs(form: Mapping[str, Any], n_dims: int) -> list[tuple[int, int]]:
    """(c, b) of a value and a key, each product of two numbers once, in whichever order."""
    key_labels = labels(form["key"], n_dims, form["bias"])
    value_labels = labels(form["value"], n_dims, form["bias"])
    found, known = [], set()
    for c in range(len(value_labels)):
        for b in range(len(key_labels)):
            product = frozenset([value_labels[c], key_labels[b]])
            if product not in known:
                known.add(product)
                found.append((c, b))
    return found


def norm_weights(form: Mapping[str, Any], n_dims: int) -> NDArray[np.float64]:
    """s (m,) with ||T||_F = ||s * P||_F: sqrt(1/2) where two entries of T are one pair."""
    form = {**DEFAULTS, **form}
    key_labels = labels(form["key"], n_dims, form["bias"])
    value_labels = labels(form["value"], n_dims, form["bias"])
    one_set = []
    for c, b in pairs(form, n_dims):
        both = value_labels[c] in key_labels and key_labels[b] in value_labels
        one_set.append(np.sqrt(0.5) if both and value_labels[c] != key_labels[b] else 1.0)
    constant = [1.0] if form["skip"] or form["intercept"] else []
    return np.array(one_set * n_scales(form) + constant)
