"""Two layers compared: as functions on all real inputs, and head by head.

Linear layers are the same function iff their folded coefficients are equal [yau2024: Corollary
A.4].  Softmax layers: iff heads with equal attention have equal sums of values (see
``canonical``; proofs are in ``docs/derivations/softmax_identifiability.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import norm

from polyattn.errors import InvalidInput, InvalidType
from polyattn.model.layer import AttentionLayer
from polyattn.model.linear import LinearAttention
from polyattn.model.softmax import SoftmaxAttention
from polyattn.numerics.parallel import single_threaded_blas

# Heads are equal, or idle, up to this part of the largest head.
TOLERANCE = 1e-12

# What two layers must share to be comparable.
SHARED = ("n_dims", "n_outputs", "mode", "bias")


@single_threaded_blas()
def coefficient_distance(layer_a: LinearAttention, layer_b: LinearAttention) -> float:
    """The Frobenius norm of the difference of the folded coefficients [yau2024: eq. 15].

    Zero iff the layers compute the same function on all real inputs [yau2024: Corollary A.4].
    """
    for layer in (layer_a, layer_b):
        if not isinstance(layer, LinearAttention):
            raise InvalidType(
                "coefficient_distance compares LinearAttention layers, which alone have folded "
                f"coefficients; got {type(layer).__name__}. For softmax layers see same_function."
            )
    require_alike(layer_a, layer_b, SHARED)
    return float(norm((layer_a.coef - layer_b.coef).ravel()))


def same_function(
    layer_a: AttentionLayer, layer_b: AttentionLayer, tolerance: float = 1e-9
) -> bool:
    """Whether two layers agree on all real inputs, up to ``tolerance`` in their parameters.

    Linear layers: the coefficients agree relative to the larger of the two.  Softmax layers: of
    the heads of both together, those whose ``attn`` agree relative to the largest have values
    with equal sums in both layers, relative to the largest value.  Sequences of any length are
    meant: on those of one or two tokens more layers agree.
    """
    if not tolerance >= 0:
        raise InvalidInput(f"tolerance must be a number >= 0; got {tolerance!r}.")
    if isinstance(layer_a, LinearAttention) and isinstance(layer_b, LinearAttention):
        distance = coefficient_distance(layer_a, layer_b)
        return distance <= tolerance * max(float(norm(P.coef.ravel())) for P in (layer_a, layer_b))
    if not (isinstance(layer_a, SoftmaxAttention) and isinstance(layer_b, SoftmaxAttention)):
        raise InvalidInput(
            "only layers of the same kind can be compared; got "
            f"{type(layer_a).__name__} and {type(layer_b).__name__}."
        )
    # The heads of one layer and the negated heads of the other have to cancel.
    require_alike(layer_a, layer_b, SHARED)
    attn = np.concatenate([visible_attn(layer_a), visible_attn(layer_b)])
    value = np.concatenate([layer_a.value, -layer_b.value])
    constants = np.zeros((2, layer_a.n_outputs))
    if layer_a.bias:
        constants = np.stack([layer.value[:, -1].sum(axis=0) for layer in (layer_a, layer_b)])
        value[:, -1] = 0.0
    _, sums, largest = merged_values(attn, value, tolerance)
    limit = tolerance * max(largest, *(float(norm(constant)) for constant in constants))
    differences = [constants[0] - constants[1], *(total.ravel() for total in sums)]
    return all(float(norm(difference)) <= limit for difference in differences)


@dataclass(frozen=True, eq=False)
class HeadMatch:
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

    def __str__(self) -> str:
        return self.sentence


@single_threaded_blas()
def match_heads(found: SoftmaxAttention, planted: SoftmaxAttention) -> HeadMatch:
    """Match the heads of two layers so that the sum of their relative errors is least.

    Errors above 1 count as 1 in that sum: one hopeless head does not disturb the others.  With
    ``bias`` only what inputs can see is compared: the last column of ``attn`` is left out, and
    the last rows of ``value`` are replaced by their mean.  Heads are taken as they are given;
    give ``canonical(layer)`` where some may be equal or idle.

    Guarantee: layers that differ by a permutation of heads (and by what ``bias`` hides) have
    errors of zero up to rounding.
    Cost: O(H^2 d (d + e)) and an assignment problem of size H.
    """
    require_softmax(found, planted)
    require_alike(found, planted, ("n_dims", "n_outputs", "bias"))
    # Of SciPy's optimisation only this is needed, and only here.
    from scipy.optimize import linear_sum_assignment

    attn = _relative_distances(visible_attn(found), visible_attn(planted))
    shares = [layer.value.copy() for layer in (found, planted)]
    if found.bias:
        for each in shares:
            each[:, -1] = each[:, -1].mean(axis=0)
    value = _relative_distances(*shares)
    rows, columns = linear_sum_assignment(np.minimum(attn, 1.0) + np.minimum(value, 1.0))
    order = np.full(planted.n_heads, -1, dtype=np.int64)
    attn_errors, value_errors = np.ones(planted.n_heads), np.ones(planted.n_heads)
    order[columns] = rows
    attn_errors[columns], value_errors[columns] = attn[rows, columns], value[rows, columns]
    extra = sorted({*range(found.n_heads)} - {*rows.tolist()})
    return HeadMatch(order, attn_errors, value_errors, tuple(extra))


@single_threaded_blas()
def canonical(layer: SoftmaxAttention, tolerance: float = TOLERANCE) -> SoftmaxAttention:
    """The same function with the fewest heads, written in one way.

    - heads with equal ``attn`` become one, whose value is the sum of theirs;
    - heads of zero value are dropped (a layer that has no other keeps one head of zeros);
    - with ``bias`` the last column of ``attn`` is zero, and every head has the same last row of
      ``value``: an equal share of their sum;
    - heads stand in the lexicographic order of the entries of ``attn``.

    Equal and zero mean: up to ``tolerance`` times the largest norm of a head of the layer.  Of
    heads that are equal up to rounding, the ``attn`` of that with the largest value is kept.

    Guarantee: two layers of one mode compute the same function on all real sequences iff their
    canonical forms are equal (for ``tolerance=0``, without rounding).  The order of heads is not
    continuous: after rounding, compare by ``match_heads`` or ``same_function``.
    """
    require_softmax(layer)
    heads, values = visible_attn(layer), layer.value.copy()
    total = values[:, -1].sum(axis=0) if layer.bias else None
    if layer.bias:
        values[:, -1] = 0.0
    groups, sums, largest = merged_values(heads, values, tolerance)
    kept = [h for h in range(len(groups)) if norm(sums[h].ravel()) > tolerance * largest]
    if kept:
        best = [max(groups[h], key=lambda i: norm(values[i].ravel())) for h in kept]
        attn, value = heads[best] + 0.0, sums[kept] + 0.0
    else:
        attn, value = np.zeros_like(heads[:1]), np.zeros_like(values[:1])
    if total is not None:
        value[:, -1] = total / len(value)
    order = sorted(range(len(attn)), key=lambda h: attn[h].ravel().tolist())
    return SoftmaxAttention(attn[order], value[order], layer.mode, layer.bias)


def visible_attn(layer: SoftmaxAttention) -> NDArray[np.float64]:
    """attn (H, d, d) with zeros where a constant coordinate shifts all logits of a query."""
    attn = layer.attn.copy()
    if layer.bias:
        attn[:, :, -1] = 0.0
    return attn


def merged_values(
    attn: NDArray, value: NDArray, tolerance: float
) -> tuple[list[list[int]], NDArray[np.float64], float]:
    """Groups of heads with equal attn, the sum of the values of each, and the largest norm."""
    sizes = [norm(A.ravel()) for A in attn]
    limit = tolerance * max(sizes)
    groups: list[list[int]] = []
    for h, A in enumerate(attn):
        near = [g for g in groups if any(norm((A - attn[i]).ravel()) <= limit for i in g)]
        joined = [*(i for g in near for i in g), h]
        groups = [*(g for g in groups if g not in near), joined]
    sums = np.stack([value[group].sum(axis=0) for group in groups])
    return groups, sums, max(float(norm(V.ravel())) for V in value)


def require_softmax(*layers: object) -> None:
    """Refuse what is no softmax layer."""
    for layer in layers:
        if not isinstance(layer, SoftmaxAttention):
            raise InvalidType(
                f"heads of SoftmaxAttention layers are compared; got {type(layer).__name__}."
            )


def require_alike(layer_a: object, layer_b: object, names: Sequence[str]) -> None:
    """Refuse to compare layers that differ in one of the named properties."""
    for name in names:
        a, b = getattr(layer_a, name), getattr(layer_b, name)
        if a != b:
            raise InvalidInput(
                f"only layers of the same kind can be compared; their {name} are {a!r} and {b!r}."
            )


def _relative_distances(found: NDArray, planted: NDArray) -> NDArray[np.float64]:
    """Norms of all differences, (found, planted), relative to the planted ones."""
    sizes = np.array([norm(matrix.ravel()) for matrix in planted])
    sizes[sizes == 0.0] = sizes.max() or 1.0
    distances = [[norm((one - other).ravel()) for other in planted] for one in found]
    return np.array(distances) / sizes
