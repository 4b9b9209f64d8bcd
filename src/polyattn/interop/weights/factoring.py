"""Heads as products of projections, where several heads may share their keys and values.

Without rotary positions heads 1, ..., s of a group have the same W_K and W_V if

    [A_1; ...; A_s] = [W_Q1; ...; W_Qs] W_K^T,      [V_1, ..., V_s] = W_V [W_O1, ..., W_Os],

whose smallest widths are the ranks of the matrices on the left: one singular value decomposition
for each group.  With rotary positions a plane of queries and keys is a complex number, and its
logits are Re(q conj(k) e^(j f (t - s))).  Keys k_h = c_h k of a plane are shared then: with
q_h conj(c_h) in the place of q_h the key is k for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.interop.low_rank import LowRank, Matrix, require_width
from polyattn.interop.weights.rotations import half_order
from polyattn.model import SoftmaxAttention
from polyattn.model.rotary import RotaryHeads


@dataclass(frozen=True)
class HeadGroups:
    """How many heads a module has, and how many groups of neighbours that share keys and values."""

    n_heads: int
    n_groups: int

    @property
    def shared(self) -> int:
        """Heads of a group."""
        return self.n_heads // self.n_groups

    def split(self, each: Matrix) -> Matrix:
        """(H, ...) -> (groups, shared, ...), with heads of zeros where a layer has fewer."""
        padding = [(0, self.n_heads - len(each))] + [(0, 0)] * (each.ndim - 1)
        return np.pad(each, padding).reshape(self.n_groups, self.shared, *each.shape[1:])


def joint_attn(layer: SoftmaxAttention, groups: HeadGroups, tolerance: float) -> LowRank:
    """[A_1; ...; A_s] of each group; without the constant of keys, which has no effect."""
    attn = groups.split(layer.attn[:, :, : layer.n_dims])
    return LowRank.of(attn.reshape(groups.n_groups, -1, layer.n_dims), tolerance, "attn")


def joint_value(layer: SoftmaxAttention, groups: HeadGroups, tolerance: float) -> LowRank:
    """[V_1, ..., V_s] of each group; without their constants, which add up in b_O."""
    value = groups.split(layer.value[:, : layer.n_dims]).transpose(0, 2, 1, 3)
    return LowRank.of(value.reshape(groups.n_groups, layer.n_dims, -1), tolerance, "value")


def query_and_key(
    layer: SoftmaxAttention, groups: HeadGroups, head_dim: int, tolerance: float
) -> dict[str, Matrix]:
    """W_Q (H, d, r), W_K (groups, d, r), b_Q and b_K of a module that divides by sqrt(r)."""
    if layer.rotary_heads is None:
        query, key = _terms(joint_attn(layer, groups, tolerance), head_dim, groups.shared)
    else:
        query, key = _rotary(layer, groups, tolerance)
    query = np.sqrt(head_dim) * query.reshape(groups.n_heads, -1, head_dim)
    found = {"W_Q": query[:, : layer.n_dims], "W_K": key[:, : layer.n_dims]}
    if layer.bias:
        found["b_Q"] = query[:, -1]
        found["b_K"] = key[:, -1] if key.shape[1] > layer.n_dims else np.zeros_like(key[:, 0])
    return found


def value_and_output(
    layer: SoftmaxAttention, groups: HeadGroups, head_dim: int, tolerance: float
) -> dict[str, Matrix]:
    """W_V (groups, d, r), W_O (H, r, e), and b_O: weights sum to one, so constants add up."""
    inner, outer = _terms(joint_value(layer, groups, tolerance), head_dim, groups.shared)
    outer = outer.reshape(groups.n_heads, layer.n_outputs, head_dim).transpose(0, 2, 1)
    found = {"W_V": inner, "W_O": np.ascontiguousarray(outer)}
    if layer.bias:
        found["b_O"] = layer.value[:, -1].sum(axis=0)
    return found


def bias_of_values(factors: dict[str, Matrix], shared: int) -> Matrix:
    """b_V (groups, r) that adds what b_O would: sum over heads of b_V W_O = b_O."""
    _, head_dim, n_outputs = factors["W_O"].shape
    sums = factors["W_O"].reshape(-1, shared, head_dim, n_outputs).sum(axis=1)
    rows, wanted = sums.reshape(-1, n_outputs), factors["b_O"]
    found = np.linalg.lstsq(rows.T, wanted, rcond=None)[0]
    missed = float(np.linalg.norm(found @ rows - wanted))
    size = float(np.linalg.norm(wanted))
    if missed > 1e-11 * size:
        raise InvalidInput(
            f"the layer adds a constant of which {missed / size:.2g} is no output of its values, "
            "and layout 'qwen2' has no bias of outputs; layout 'llama' has one."
        )
    return np.asarray(found.reshape(-1, head_dim))


def _rotary(layer: SoftmaxAttention, groups: HeadGroups, tolerance: float) -> tuple[Matrix, Matrix]:
    """Queries (groups, shared, D, r) and keys (groups, D, r) in the order of modules."""
    heads = cast(RotaryHeads, layer.rotary_heads)
    query, key = groups.split(heads.query).copy(), groups.split(heads.key)
    half, turned = len(heads.frequencies), heads.frequencies != 0.0
    # Planes that are not turned, and keys that nobody shares, stay as they are.
    shared_key = key[:, 0].copy()
    if groups.shared > 1:
        for i in np.flatnonzero(turned):
            pair = [i, i + half]
            query[..., pair], shared_key[..., pair] = _shared_plane(
                query[..., pair], key[..., pair], tolerance
            )
        still = np.flatnonzero(np.tile(~turned, 2))
        if still.size:
            query[..., still], shared_key[..., still] = _shared_rest(
                query[..., still], key[..., still], layer.n_dims, tolerance
            )
    n_turned = 2 * (int(np.flatnonzero(turned).max(initial=-1)) + 1)
    order = np.argsort(half_order(2 * half, n_turned, interleaved=False))
    return query[..., order], shared_key[..., order]


def _shared_rest(
    query: Matrix, key: Matrix, n_dims: int, tolerance: float
) -> tuple[Matrix, Matrix]:
    """The same of coordinates that are not turned, which can be mixed: heads without positions."""
    groups, shared, width, n_still = query.shape
    attn = (query @ np.swapaxes(key, -1, -2))[..., :n_dims].reshape(groups, -1, n_dims)
    found, keys = _terms(LowRank.of(attn, tolerance, "attn"), n_still, shared)
    # The constant of such keys has no effect.
    keys = np.pad(keys, ((0, 0), (0, width - n_dims), (0, 0)))
    return found.reshape(query.shape), keys


def _shared_plane(query: Matrix, key: Matrix, tolerance: float) -> tuple[Matrix, Matrix]:
    """Queries and one key of a plane, (groups, shared, D, 2) and (groups, D, 2)."""
    q, k = query[..., 0] + 1j * query[..., 1], key[..., 0] + 1j * key[..., 1]
    sizes = np.linalg.norm(k, axis=-1)
    largest = np.argmax(sizes, axis=1)
    groups = np.arange(len(k))
    reference, size = k[groups, largest], sizes[groups, largest]  # (groups, D), (groups,)
    size = np.where(size > 0.0, size, 1.0)[:, None]
    factor = np.einsum("gsd,gd->gs", k / size[..., None], (reference / size).conj())
    factor[groups, largest] = 1.0
    missed = np.linalg.norm(k - factor[..., None] * reference[:, None], axis=-1)
    allowed = max(tolerance, 1e-12) * sizes
    if np.any(missed > allowed):
        group, head = np.argwhere(missed > allowed)[0]
        first = int(group) * k.shape[1]
        raise InvalidInput(
            f"heads {first + int(largest[group])} and {first + int(head)} would share keys "
            f"(n_kv_heads = {len(k)}), and theirs differ by {missed[group, head]:.2g} of "
            f"{sizes[group, head]:.2g} in a plane that is turned; give n_kv_heads="
            f"{k.shape[0] * k.shape[1]}."
        )
    q = q * factor.conj()[..., None]
    return np.stack([q.real, q.imag], -1), np.stack([reference.real, reference.imag], -1)


def _terms(terms: LowRank, head_dim: int, shared: int) -> tuple[Matrix, Matrix]:
    """The two factors of every group; ranks that need more coordinates are refused."""
    reason, advice = "", "wider or simpler heads would fit"
    if shared > 1:
        reason = f", and they would share {'keys' if terms.name == 'attn' else 'values'}"
        advice = "more n_kv_heads, or wider heads, would fit"
    require_width(head_dim, [terms], reason, advice, shared)
    return terms.terms(head_dim, np.arange(len(terms.ranks)))
