"""canonical: the one way to write a layer, so that equal functions have equal parameters.

Softmax layers are fixed by their heads (``docs/derivations/softmax_identifiability.md``).  Of a
linear layer data see the folded coefficients alone.  Any invertible mixture of heads leaves them
as they are, and where products fold, so does anything antisymmetric in key and value.  Two choices
remove both: the tensor T of least norm with these coefficients, and the singular value
decomposition of its unfolding [(c, a), (l, b)], whose terms are heads.
"""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import norm, svd

from polyattn.errors import require_number
from polyattn.form.pairs import unfold_coef
from polyattn.model.canonical_planes import NEAR, in_order, leading_rotation, written_in_planes
from polyattn.model.compare import TOLERANCE, merged_values, require_same_kind
from polyattn.model.linear import LinearAttention
from polyattn.model.offsets import head_distances, visible_attn
from polyattn.model.softmax import SoftmaxAttention
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.scaling import EPS, restored


@overload
def canonical(layer: LinearAttention, tolerance: float = TOLERANCE) -> LinearAttention: ...
@overload
def canonical(layer: SoftmaxAttention, tolerance: float = TOLERANCE) -> SoftmaxAttention: ...
@single_threaded_blas()
def canonical(
    layer: LinearAttention | SoftmaxAttention, tolerance: float = TOLERANCE
) -> LinearAttention | SoftmaxAttention:
    """The same function written in one way, whatever the heads of the layer were.

    A softmax layer has the fewest heads that compute it:

    - heads with equal ``attn`` become one, whose value is the sum of theirs;
    - heads of zero value are dropped (a layer that has no other keeps one head of zeros);
    - with ``bias`` the last column of ``attn`` is zero, and every head has the same last row of
      ``value``: an equal share of their sum;
    - heads stand in the lexicographic order of the entries of ``attn``, or of W_Q and W_K;
    - with rotary positions ``attn`` is meant as a function of the offset.  Each frequency,
      between 0 and pi, has the fewest planes that the heads need, and q_i, k_i are its singular
      vectors, ||q_i|| = ||k_i||; where all frequencies are zero there are no positions.

    A linear layer is made from its folded coefficients alone, and has the heads of the tensor of
    least norm with these coefficients:

        T[a,c,b,l] = sum_h V_h[c,a] A_h[l,b],    <A_h, A_i> = <V_h, V_i> = 0,    ||A_h|| = ||V_h||

    - heads stand in the order of their size ||A_h|| ||V_h||, the largest first;
    - of A_h and -A_h the one is taken whose leading entry is positive (the first entry of at
      least 0.9 of the largest one);
    - heads whose sizes agree to 1e-8 of the largest are rotated among themselves in the same
      way: the second is zero where the first leads, and so on.

    Where keys and values share no coordinates, these are the fewest heads.  In general they are
    not, since T is symmetric in the products that fold (see ``heads.compress``).  Of a form with
    several scales this is done for each, the first scale first.

    Equal and zero mean: up to ``tolerance`` times the largest norm of a head of the layer, or the
    largest size of linear ones.  Coefficients of a linear layer are met up to rounding of the
    largest: where coordinates are of very different sizes, bring them to one size first.  Of
    softmax heads that are equal up to rounding, the ``attn`` of that with the largest value is
    kept.

    Guarantee: two layers of one mode, or form, have equal canonical forms iff they compute the same
    function on all real sequences (without rounding; softmax: for ``tolerance=0``; linear: as far
    as that function determines the folded coefficients, see ``coefficient_distance``).  The order
    of heads is not continuous: after rounding, compare by ``match_heads`` or ``same_function``.
    Cost: linear layers O(d^4 min(e d, d^2)), softmax layers O(H^2 d (d + e)).

    Examples
    --------
    >>> import numpy as np, polyattn as pa
    >>> layer = pa.data.random_layer(3, n_heads=2, random_state=0)
    >>> mixed = np.array([[1.0, 2.0], [0.0, -1.0]])
    >>> other = pa.LinearAttention(
    ...     np.einsum("gh,hlb->glb", mixed, layer.attn),
    ...     np.einsum("hg,hca->gca", np.linalg.inv(mixed), layer.value),
    ... )
    >>> pa.match_heads(other, layer).worst_attn > 0.1  # no head of one is a head of the other
    True
    >>> pa.match_heads(pa.canonical(other), pa.canonical(layer)).worst_attn < 1e-9
    True
    """
    require_same_kind(layer=layer)
    require_number("tolerance", tolerance)
    if isinstance(layer, LinearAttention):
        return _canonical_linear(layer, tolerance)
    return _canonical_softmax(layer, tolerance)


def _canonical_softmax(layer: SoftmaxAttention, tolerance: float) -> SoftmaxAttention:
    """Equal heads merged, idle ones dropped, hidden parts removed, heads in order."""
    values = layer.value.copy()
    total = values[:, -1].sum(axis=0) if layer.bias else None
    if layer.bias:
        values[:, -1] = 0.0
    groups, sums, largest = merged_values(head_distances([layer], tolerance), values, tolerance)
    kept = [h for h in range(len(groups)) if norm(sums[h].ravel()) > tolerance * largest]
    best = [max(groups[h], key=lambda i: norm(values[i].ravel())) for h in kept]
    value = sums[kept] + 0.0 if kept else np.zeros_like(values[:1])
    if total is not None:
        value[:, -1] = total / len(value)
    if layer.rotary_heads is not None and kept:
        return written_in_planes(layer, best, value, tolerance)
    width = layer.value.shape[1]
    attn = visible_attn(layer)[best] if kept else np.zeros((1, width, width))
    return in_order(attn, value, layer)


def _canonical_linear(layer: LinearAttention, tolerance: float) -> LinearAttention:
    """The heads of the tensors of least norm with the coefficients of the layer, scale by scale."""
    _, _, of_attn, of_value = layer._scaled_heads
    exponent, pairs = of_attn + of_value, layer.layout.pairs
    # An even power of two is left, so that attn and value get the same share of it.
    folded = np.ldexp(layer._folded, exponent % 2)
    tensors = [unfold_coef(coef, pairs) for coef in np.split(folded, layer.layout.n_scales, axis=1)]
    found = [svd(_unfolding(tensor), full_matrices=False) for tensor in tensors]
    largest = max(sigma[0] for _, sigma, _ in found)
    heads = [_leading_heads(left, sigma, right, largest, tolerance) for left, sigma, right in found]
    scales = np.repeat(np.arange(len(heads)), [len(attn) for attn, _ in heads])
    attn, value = (np.concatenate(parts) for parts in zip(*heads, strict=True))
    if not len(attn):
        # Something has to compute zero.
        attn, value = (np.zeros((1, each.shape[1])) for each in (attn, value))
        scales = np.zeros(1, dtype=np.intp)
    return LinearAttention(
        restored(attn, exponent // 2, "the heads").reshape(-1, *layer.attn.shape[1:]),
        restored(value, exponent // 2, "the heads").reshape(-1, *layer.value.shape[1:]),
        form=layer.form, n_dims=layer.n_dims, n_context_dims=layer.n_context_dims,
        head_scales=scales, skip=layer.skip, intercept=layer.intercept,
    )  # fmt: skip


def _unfolding(tensor: NDArray) -> NDArray[np.float64]:
    """T (e, values, keys, r) as the matrix [(c, a), (l, b)]."""
    n_outputs, n_values, n_keys, n_queries = tensor.shape
    return tensor.transpose(1, 0, 3, 2).reshape(n_values * n_outputs, n_queries * n_keys)


def _leading_heads(
    left: NDArray, sigma: NDArray, right: NDArray, largest: float, tolerance: float
) -> tuple[NDArray, NDArray]:
    """attn (H, r keys) and value (H, values e), in one way; those that are zero are dropped."""
    rounding = EPS * max(left.shape[0], right.shape[1])
    kept = int(np.count_nonzero(sigma > max(tolerance, rounding) * largest))
    roots = np.sqrt(sigma[:kept, None])
    attn, value = roots * right[:kept], roots * left[:, :kept].T
    borders = np.flatnonzero(-np.diff(sigma[:kept]) > NEAR * largest) + 1
    for group in np.split(np.arange(kept), borders) if kept else ():
        rotation = leading_rotation(right[group].T).T
        attn[group], value[group] = rotation @ attn[group], rotation @ value[group]
    # Adding zero turns -0.0 into 0.0.
    return attn + 0.0, value + 0.0
