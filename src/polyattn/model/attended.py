"""What a position of linear attention sees: sums of key features times values, in linear time.

For a head with key features psi_l(k_s) and values v_s, a position t has the rows

    Z_t[l] = sum_s psi_l(k_s) v_s / c_tl,        s running over what t attends to,

where c_tl is the number of tokens attended to (``"tokens"``), or the sum of psi_l over them
(``"features"``: each row is then a mean of values, with weights of its own).  ``"fitted"`` is as
``"tokens"``: whoever asks for it divides afterwards.  A window adds one row: softmax attention over
the tokens at a distance below it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.model.feature_maps import SideMap
from polyattn.model.softmax import softmax

Array = NDArray[np.float64]

DENOMINATORS = ("features", "tokens", "fitted")


def attended_rows(
    keys: Array, values: Array, key_map: SideMap, head: int, mode: str, denominator: str
) -> Array:
    """Rows Z (B, T, F, c) of keys (B, n, r) and values (B, n, c).

    T is 1 in the modes ``full`` and ``last``, whose positions all see the same rows, and n in mode
    ``causal``.  Cost: O(n F c) per sequence.
    """
    if denominator == "features":
        logs = key_map.logs(keys, head)
        return _running_means(logs, values) if mode == "causal" else _means(logs, values)
    features = key_map.features(keys, head)
    n_tokens = keys.shape[1]
    if mode != "causal":
        return (features.transpose(0, 2, 1) @ values)[:, None] / n_tokens
    sums = np.cumsum(features[..., None] * values[:, :, None, :], axis=1)
    sums /= np.arange(1, n_tokens + 1)[:, None, None]
    return sums


def window_rows(queries: Array, keys: Array, values: Array, mode: str, window: int) -> Array:
    """Softmax attention (B, T, c) over the tokens at distances below ``window``.

    queries : (B, T, r), T = 1 in mode ``last``, else n
    Cost: O(n window (r + c)) per sequence.
    """
    n_tokens = keys.shape[1]
    reach = min(window, n_tokens)
    before, after = reach - 1, (reach - 1 if mode == "full" else 0)
    places = np.arange(n_tokens)[:, None] + np.arange(-before, after + 1)
    places = places[-1:] if mode == "last" else places
    outside = (places < 0) | (places >= n_tokens)
    places = np.clip(places, 0, n_tokens - 1)
    logits = np.empty((*queries.shape[:2], places.shape[1]))
    for offset in range(places.shape[1]):
        logits[..., offset] = np.einsum("btr,btr->bt", queries, keys[:, places[:, offset]])
    logits[:, outside] = -np.inf
    weights = softmax(logits)
    means = np.zeros((*queries.shape[:2], values.shape[2]))
    for offset in range(places.shape[1]):
        means += weights[..., offset, None] * values[:, places[:, offset]]
    return means


def _means(logs: Array, values: Array) -> Array:
    """Means (B, 1, F, c) of all values with weights exp(logs), (B, n, F)."""
    weights = softmax(np.ascontiguousarray(logs.transpose(0, 2, 1)))
    return (weights @ values)[:, None]


def _running_means(logs: Array, values: Array) -> Array:
    """The same for every token over itself and those before it, (B, n, F, c).

    A mean goes on as Z_t = Z_{t-1} + share_t (v_t - Z_{t-1}), share_t = exp(log_t - total_t), so
    that no exponential is above one, whatever the size of the logarithms.
    """
    totals = np.logaddexp.accumulate(logs, axis=1)
    shares = np.exp(logs - totals)
    means = np.empty((*logs.shape, values.shape[2]))
    means[:, 0] = values[:, 0, None, :]
    for t in range(1, logs.shape[1]):
        step = values[:, t, None, :] - means[:, t - 1]
        step *= shares[:, t, :, None]
        np.add(means[:, t - 1], step, out=means[:, t])
    return means
