"""Which head of one layer is which of another, and how far apart they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import norm

from polyattn.display import Description, Tabled, table_lines
from polyattn.errors import InvalidInput
from polyattn.model.compare import TOLERANCE, require_alike, require_same_kind
from polyattn.model.layer import AttentionLayer
from polyattn.model.linear import LinearAttention
from polyattn.model.offsets import head_distances
from polyattn.model.softmax import SoftmaxAttention
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.quoting import counted, shown


@dataclass(frozen=True, eq=False, repr=False)
class HeadMatch(Tabled):
    """Which head of one layer is which of another, and how far apart they are.

    Attributes
    ----------
    order : integer array (H,)
        Head h of the planted layer was found as head ``order[h]``; -1: it was not found.
    attn_errors, value_errors : arrays (H,)
        Frobenius norm of the difference over that of the planted matrix (of the largest one,
        where the planted matrix is zero).  A head that was not found has error 1, as if it had
        been found to be zero.
    extra : tuple of int
        Heads that were found and are none of the planted ones.
    """

    order: NDArray[np.int64]
    attn_errors: NDArray[np.float64]
    value_errors: NDArray[np.float64]
    extra: tuple[int, ...] = ()

    @property
    def missing(self) -> tuple[int, ...]:
        """Planted heads that were not found."""
        return tuple(int(h) for h in np.flatnonzero(self.order < 0))

    @property
    def worst_attn(self) -> float:
        """The largest error of an attention matrix; infinite if there are extra heads."""
        return np.inf if self.extra else float(self.attn_errors.max())

    @property
    def worst_value(self) -> float:
        """The largest error of a value matrix; infinite if there are extra heads."""
        return np.inf if self.extra else float(self.value_errors.max())

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        n_matched = len(self.order) - len(self.missing)
        text = f"{n_matched} of {len(self.order)} heads matched"
        if n_matched:
            matched = self.order >= 0
            text += (
                f", with relative errors of at most {self.attn_errors[matched].max():.2g} in attn "
                f"and {self.value_errors[matched].max():.2g} in value"
            )
        others = (("not found", self.missing), ("found but not planted", self.extra))
        for what, heads in others:
            text += f"; {what}: {', '.join(map(str, heads))}" if heads else ""
        return f"{text}."

    def describe(self) -> Description:
        """Which head is which, head by head."""
        n_found = len(self.order) - len(self.missing) + len(self.extra)
        rows: list[tuple[Any, ...]] = [
            (h, int(at) if at >= 0 else None, *errors)
            for h, (at, *errors) in enumerate(
                zip(
                    self.order.tolist(), self.attn_errors.tolist(), self.value_errors.tolist(),
                    strict=True,
                )
            )
        ]  # fmt: skip
        rows += [(None, head, None, None) for head in self.extra]
        columns = ("planted head", "found as", "error of attn", "error of value")
        about = f"{counted(len(self.order), 'planted head')}, {n_found} found"
        return Description(
            "Heads of two layers", about, self.sentence, lines=table_lines(columns, rows),
            sizes={
                "order": self.order.tolist(), "attn_errors": self.attn_errors.tolist(),
                "value_errors": self.value_errors.tolist(), "extra": list(self.extra),
            },
        )  # fmt: skip

    def __repr__(self) -> str:
        n_matched = len(self.order) - len(self.missing)
        return f"HeadMatch({n_matched} of {counted(len(self.order), 'head')} matched)"


@single_threaded_blas()
def match_heads(found: AttentionLayer, planted: AttentionLayer) -> HeadMatch:
    """Match the heads of two layers so that the sum of their relative errors is least.

    Errors above 1 count as 1 in that sum: one hopeless head does not disturb the others.  Only
    what inputs can see of a head is compared:

    - softmax: with ``bias`` the last column of ``attn`` is left out, and the last rows of
      ``value`` are replaced by their mean; with rotary positions ``attn`` is compared as a
      function of the offset, in root mean square over all offsets;
    - linear: heads (A, V) and (c A, V / c) are the same.  Both are written with attn and value
      of one norm, and the sign of c is the one with smaller errors.  Only heads of one scale of
      the form are matched, and ``skip`` and ``intercept`` are no heads.

    Guarantee: layers that differ by a permutation of heads, and by the above, have errors of zero
    up to rounding.  Heads are taken as they are given.  Softmax layers of the same function have
    the same heads, but some may be equal or idle; linear layers of the same function may have
    heads that have nothing in common.  Give ``canonical(layer)`` for both there.
    Cost: O(H^2 d (d + e)) and an assignment problem of size H.
    """
    require_same_kind(found=found, planted=planted)
    require_alike(found, planted, ("n_dims", "n_outputs", "bias"))
    if isinstance(found, LinearAttention) and isinstance(planted, LinearAttention):
        _require_same_form(found, planted)
    scales, planted_scales = (_head_scales(layer) for layer in (found, planted))
    # Of SciPy's optimisation only this is needed, and only here.
    from scipy.optimize import linear_sum_assignment

    attn, value = _errors(found, planted)
    costs = np.minimum(attn, 1.0) + np.minimum(value, 1.0)
    order = np.full(planted.n_heads, -1, dtype=np.int64)
    attn_errors, value_errors = np.ones(planted.n_heads), np.ones(planted.n_heads)
    for scale in np.unique(planted_scales):
        own, others = np.flatnonzero(scales == scale), np.flatnonzero(planted_scales == scale)
        rows, columns = linear_sum_assignment(costs[np.ix_(own, others)])
        rows, columns = own[rows], others[columns]
        order[columns] = rows
        attn_errors[columns], value_errors[columns] = attn[rows, columns], value[rows, columns]
    extra = sorted({*range(found.n_heads)} - {*order.tolist()})
    return HeadMatch(order, attn_errors, value_errors, tuple(extra))


def _head_scales(layer: AttentionLayer) -> NDArray[np.int64]:
    """The scale of each head: heads of different scales are never the same."""
    if isinstance(layer, LinearAttention):
        return layer.head_scales
    return np.zeros(layer.n_heads, dtype=np.int64)


def _require_same_form(found: LinearAttention, planted: LinearAttention) -> None:
    """Refuse heads that see or weigh tokens differently; which positions are predicted is free."""
    require_alike(found, planted, ("n_context_dims",))
    forms = [replace(layer.form, mode="causal") for layer in (found, planted)]
    if forms[0] != forms[1]:
        raise InvalidInput(
            "only heads of layers of one form can be matched; their forms are "
            f"{shown(found.form)} and {shown(planted.form)}."
        )


def _errors(found: AttentionLayer, planted: AttentionLayer) -> tuple[NDArray, NDArray]:
    """Relative errors of attn and value of every head found as every planted one."""
    if isinstance(found, SoftmaxAttention) and isinstance(planted, SoftmaxAttention):
        heads, own = head_distances([found, planted], TOLERANCE), found.n_heads
        attn = heads.distances[:own, own:] / _sizes(heads.sizes[own:])
        shares = [layer.value.copy() for layer in (found, planted)]
        if found.bias:
            for each in shares:
                each[:, -1] = each[:, -1].mean(axis=0)
        return attn, _relative_distances(*shares)
    (attn, value), (planted_attn, planted_value) = map(_balanced, (found, planted))
    same = _relative_distances(attn, planted_attn), _relative_distances(value, planted_value)
    other = _relative_distances(-attn, planted_attn), _relative_distances(-value, planted_value)
    flipped = np.add(*other) < np.add(*same)
    return np.where(flipped, other[0], same[0]), np.where(flipped, other[1], same[1])


def _balanced(layer: AttentionLayer) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The heads (c A, V / c) with ||c A|| = ||V / c||; both zero where one of them is."""
    sizes = [
        np.array([norm(matrix.ravel()) for matrix in matrices])[:, None, None]
        for matrices in (layer.attn, layer.value)
    ]
    common = np.sqrt(sizes[0]) * np.sqrt(sizes[1])
    attn, value = (
        matrices / np.where(size > 0.0, size, 1.0) * common
        for matrices, size in zip((layer.attn, layer.value), sizes, strict=True)
    )
    return attn, value


def _relative_distances(found: NDArray, planted: NDArray) -> NDArray[np.float64]:
    """Norms of all differences, (found, planted), relative to the planted ones."""
    sizes = np.array([norm(matrix.ravel()) for matrix in planted])
    distances = [[norm((one - other).ravel()) for other in planted] for one in found]
    return np.array(distances) / _sizes(sizes)


def _sizes(planted: NDArray[np.float64]) -> NDArray[np.float64]:
    """What distances are relative to: the size of the planted head, or of the largest one."""
    return np.where(planted == 0.0, planted.max() or 1.0, planted)
