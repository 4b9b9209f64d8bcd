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
from polyattn.numerics.scaling import EPS, restored


class Component(NamedTuple):
    """The part of heads that belongs to one frequency g.

    frequency : g, between 0 and pi
    matrices : for each layer N_g (H, d, d), complex for 0 < g < pi and real for 0 and pi
    """

    frequency: float
    matrices: list[NDArray]

    @property
    def is_real(self) -> bool:
        """Whether g is 0 or pi, where nothing but real parts is seen."""
        return not np.iscomplexobj(self.matrices[0])


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
    Cost: O(H^2 d^2) for each frequency.
    """
    count = sum(layer.n_heads for layer in layers)
    sizes, distances = np.zeros(count), np.zeros((count, count))
    for component in components(layers, tolerance):
        # A wave has half of the mean square of a constant.
        share = 1.0 if component.is_real else np.sqrt(0.5)
        heads = np.concatenate(component.matrices) * share
        for h, N in enumerate(heads):
            sizes[h] = np.hypot(sizes[h], norm(N.ravel()))
            for i in range(h):
                distances[h, i] = np.hypot(distances[h, i], norm((N - heads[i]).ravel()))
    return HeadDistances(sizes, distances + distances.T)


def components(layers: Sequence[SoftmaxAttention], tolerance: float) -> Iterator[Component]:
    """The visible parts of the heads of layers, frequency by frequency, smallest first."""
    given = [layer.frequencies for layer in layers if layer.frequencies is not None]
    if not given:
        yield Component(0.0, [visible_attn(layer) for layer in layers])
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
        found = [_matrices(layer, frequency, reach, bool(len(at))) for layer in layers]
        if any(np.any(matrices) for matrices in found):
            yield Component(frequency, found)


def _folded(frequencies: NDArray) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The frequency between 0 and pi that integers cannot tell from each, and whether conjugate."""
    # Exact for frequencies between -pi and pi.
    turned = np.fmod(np.abs(frequencies), 2.0 * np.pi)
    beyond = turned > np.pi
    return np.where(beyond, 2.0 * np.pi - turned, turned), beyond != (frequencies < 0.0)


def _matrices(
    layer: SoftmaxAttention, frequency: float, reach: tuple[float, float], is_real: bool
) -> NDArray:
    """N_g (H, d, d) of the planes whose frequencies lie between both ends of ``reach``."""
    if layer.rotary_heads is None:
        attn = visible_attn(layer)
        nothing = np.zeros(attn.shape, dtype=np.float64 if is_real else np.complex128)
        return attn if frequency == 0.0 else nothing
    turned, power = layer.rotary_heads.of_order_one()
    folded, flipped = _folded(turned.frequencies)
    own = (folded >= reach[0]) & (folded <= reach[1])
    sign = np.where(flipped[own], -1.0, 1.0)
    queries, keys = (
        real[..., own] + 1j * sign * imaginary[..., own]
        for real, imaginary in (np.split(W, 2, axis=2) for W in (turned.query, turned.key))
    )
    product = queries @ keys.conj().transpose(0, 2, 1)
    parts = [restored(each, power, "attn") for each in (product.real, product.imag)]
    if frequency == 0.0 and layer.bias:
        parts[0][:, :, -1] = 0.0
    return parts[0] if is_real else parts[0] + 1j * parts[1]
