"""The same heads as another layer: of another mode, or of other coordinates of tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from polyattn.model.softmax import SoftmaxAttention


def in_mode(layer: SoftmaxAttention, mode: str) -> SoftmaxAttention:
    """The layer in another mode."""
    if layer.query is None or layer.key is None:
        return SoftmaxAttention(layer.attn, layer.value, mode, layer.bias)
    pair = layer.query, layer.key
    return SoftmaxAttention(pair, layer.value, mode, layer.bias, layer.frequencies)


def of_tokens(layer: SoftmaxAttention, outwards: NDArray[np.float64]) -> SoftmaxAttention:
    """The layer of tokens z that is ``layer`` for z @ outwards; outwards is (D, D')."""
    return rewritten(
        layer,
        lambda attn: outwards @ attn @ outwards.T,
        lambda projection: outwards @ projection,
        lambda value: outwards @ value,
    )


def rewritten(
    layer: SoftmaxAttention,
    of_attn: Callable[[NDArray], NDArray],
    of_projection: Callable[[NDArray], NDArray],
    of_value: Callable[[NDArray], NDArray],
) -> SoftmaxAttention:
    """The layer with other matrices: attn, or with rotary positions W_Q and W_K, and value."""
    value = of_value(layer.value)
    if layer.query is None or layer.key is None:
        return SoftmaxAttention(of_attn(layer.attn), value, layer.mode, layer.bias)
    pair = of_projection(layer.query), of_projection(layer.key)
    return SoftmaxAttention(pair, value, layer.mode, layer.bias, layer.frequencies)
