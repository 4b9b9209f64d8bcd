"""What inputs can see of softmax heads: their attention as a function of the offset.

With rotary positions the attention at offset o is (``rotary``)

    A(o) = sum_i Re[ q_i k_i^H exp(j o f_i) ] = sum_g Re[ N_g exp(j o g) ],    0 <= g <= pi,

with one complex matrix N_g for each frequency.  Offsets are integers, so f and f + 2 pi are one
frequency, and so are f and -f with the conjugate matrix; at g = 0 and g = pi only the real part of
N_g can be seen.  Functions of o with different g are independent, so heads have the same attention
at all offsets iff their N_g agree.  Without rotary positions there is g = 0 alone, N_0 = attn.
With ``bias`` the last column of N_0 shifts all logits of a query alike, and is invisible (see
``docs/derivations/rotary.md``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import norm

from polyattn.model.softmax import SoftmaxAttention
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.scaling import EPS


class Component(NamedTuple):
    """The part of heads that belongs to one frequency g.

    frequency : g, between 0 and pi
    factors : for each layer Q and K (H, d, m) with N_g = Q K^H, or N_g (H, d, d) itself and None;
        complex for 0 < g < pi and real for 0 and pi
    """

    frequency: float
    factors: list[tuple[NDArray, NDArray | None]]

    @property
    def is_real(self) -> bool:
        """Whether g is 0 or pi, where nothing but real parts is seen."""
        return not np.iscomplexobj(self.factors[0][0])

    @property
    def matrices(self) -> list[NDArray]:
        """N_g (H, d, d) for each layer."""
        return [Q if K is None else Q @ K.conj().transpose(0, 2, 1) for Q, K in self.factors]

    def small(self) -> NDArray:
        """Matrices of all heads with the norms, and norms of differences, of the N_g.

        Where planes are fewer than coordinates, N_g is written in orthonormal bases of all
        queries and of all keys together.
        """
        sizes = [Q.shape[0] * Q.shape[2] for Q, K in self.factors if K is not None]
        if len(sizes) < len(self.factors) or sum(sizes) >= self.factors[0][0].shape[1]:
            return np.concatenate(self.matrices)
        queries, keys = (_triangular(each) for each in zip(*self.factors, strict=True))
        return np.concatenate(
            [Q @ K.conj().transpose(0, 2, 1) for Q, K in zip(queries, keys, strict=True)]
        )


class HeadDistances(NamedTuple):
    """How large the attention of heads is, and how far heads are apart.

    sizes (H,) and distances (H, H) are norms of A, the root mean square over all offsets
    """

    sizes: NDArray[np.float64]
    distances: NDArray[np.float64]


def visible_attn(layer: SoftmaxAttention) -> NDArray[np.float64]:
    """attn (H, d, d) with zeros where a constant coordinate shifts all logits of a query.

    Of a layer with rotary positions this is what is seen at offset 0, and no more.
    """
    attn = layer.attn.copy()
    if layer.bias:
        attn[:, :, -1] = 0.0
    return attn


@single_threaded_blas()
def head_distances(layers: Sequence[SoftmaxAttention], tolerance: float) -> HeadDistances:
    """Sizes and distances of all heads of these layers, one layer after the other.

    tolerance : frequencies that are so near, relative to their size, are one
    Both are in one unit, a power of two.  Cost: for each frequency O(H^2 d^2); of m planes with
    H m < d of all heads together O(d (H m)^2 + H^4 m^2).
    """
    turned = [layer.rotary_heads for layer in layers if layer.rotary_heads is not None]
    unit = max((heads.of_order_one()[1] for heads in turned), default=0)
    count = sum(layer.n_heads for layer in layers)
    sizes, distances = np.zeros(count), np.zeros((count, count))
    for component in components(layers, tolerance, unit):
        # A wave has half of the mean square of a constant.
        share = 1.0 if component.is_real else np.sqrt(0.5)
        heads = component.small() * share
        for h, N in enumerate(heads):
            sizes[h] = np.hypot(sizes[h], norm(N.ravel()))
            for i in range(h):
                distances[h, i] = np.hypot(distances[h, i], norm((N - heads[i]).ravel()))
    return HeadDistances(sizes, distances + distances.T)


def components(
    layers: Sequence[SoftmaxAttention], tolerance: float, unit: int = 0
) -> Iterator[Component]:
    """The visible parts of the heads of layers, frequency by frequency, smallest first.

    unit : the power of two that they are divided by
    """
    given = [layer.frequencies for layer in layers if layer.frequencies is not None]
    if not given:
        yield Component(0.0, [(visible_attn(layer), None) for layer in layers])
        return
    anchors = np.array([0.0, np.pi])
    each = np.concatenate([*given, anchors])
    folded = np.concatenate([_folded(each[:-2])[0], anchors])
    # Folding loses digits of large frequencies.
    slack = max(tolerance, 4 * EPS) * np.abs(each)
    slack[-2:] = 0.0
    order = np.argsort(folded, kind="stable")
    near = np.diff(folded[order]) <= np.maximum(slack[order][1:], slack[order][:-1])
    for group in np.split(order, np.flatnonzero(~near) + 1):
        at = anchors[np.isin([len(each) - 2, len(each) - 1], group)]
        frequency = float(at[0] if len(at) else folded[group].min())
        reach = float(folded[group].min()), float(folded[group].max())
        found = [_factors(layer, frequency, reach, bool(len(at)), unit) for layer in layers]
        if any(np.any(queries) for queries, _ in found):
            yield Component(frequency, found)


def _folded(frequencies: NDArray) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The frequency between 0 and pi that integers cannot tell from each, and whether conjugate."""
    # Exact for frequencies between -pi and pi.
    turned = np.fmod(np.abs(frequencies), 2.0 * np.pi)
    beyond = turned > np.pi
    return np.where(beyond, 2.0 * np.pi - turned, turned), beyond != (frequencies < 0.0)


def _factors(
    layer: SoftmaxAttention, frequency: float, reach: tuple[float, float], is_real: bool, unit: int
) -> tuple[NDArray, NDArray | None]:
    """Q and K (H, d, m) of the planes whose frequencies lie between both ends of ``reach``."""
    if layer.rotary_heads is None:
        attn = visible_attn(layer)
        nothing = np.zeros((*attn.shape[:2], 1), dtype=np.float64 if is_real else np.complex128)
        return (np.ldexp(attn, -unit), None) if frequency == 0.0 else (nothing, nothing)
    turned, power = layer.rotary_heads.of_order_one()
    folded, flipped = _folded(turned.frequencies)
    own = (folded >= reach[0]) & (folded <= reach[1])
    halves = [
        [part[..., own] for part in np.split(W, 2, axis=2)]
        for W in (np.ldexp(turned.query, power - unit), turned.key)
    ]
    if is_real:
        queries, keys = (np.concatenate(both, axis=2) for both in halves)
        if frequency == 0.0 and layer.bias:
            keys[:, -1] = 0.0
        return queries, keys
    sign = np.where(flipped[own], -1.0, 1.0)
    (q, q_imaginary), (k, k_imaginary) = halves
    return q + 1j * sign * q_imaginary, k + 1j * sign * k_imaginary


def _triangular(factors: Sequence[NDArray]) -> list[NDArray]:
    """Factors (H, d, m) of all layers in one orthonormal basis (H, c, m) of their columns."""
    sides = [each.transpose(1, 0, 2).reshape(each.shape[1], -1) for each in factors]
    together = np.linalg.qr(np.concatenate(sides, axis=1), mode="r")
    borders = np.cumsum([side.shape[1] for side in sides])[:-1]
    return [
        part.reshape(len(together), len(each), -1).transpose(1, 0, 2)
        for part, each in zip(np.split(together, borders, axis=1), factors, strict=True)
    ]
