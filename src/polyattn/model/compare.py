"""Two layers compared as functions on all real inputs.

Linear layers of the papers are the same function iff their folded coefficients are equal [yau2024:
Corollary A.4].  Other forms can have features that depend on one another: the same token as query,
key and value (a window of one token), constants that a mean leaves as they are, maps.  Layers whose
coefficients differ are then compared on random sequences.

Softmax layers are the same function iff heads with equal attention have equal sums of values (see
``canonical``; proofs are in ``docs/derivations/softmax_identifiability.md``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import norm

from polyattn.errors import InvalidInput, InvalidType, require_number
from polyattn.form.layout import Layout
from polyattn.model.forward import coef_forward
from polyattn.model.layer import AttentionLayer
from polyattn.model.linear import LinearAttention
from polyattn.model.offsets import HeadDistances, head_distances
from polyattn.model.rotary import require_no_rotary
from polyattn.model.softmax import SoftmaxAttention
from polyattn.numerics import scaling
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.sequences import SequenceBatch

# Heads are equal, or idle, up to this part of the largest head.
TOLERANCE = 1e-12

# Of layers with more coefficients than this (0.5 GB), about so many are made at a time.
MOST_TOGETHER, PART_NUMBERS = 1 << 26, 1 << 22

# What two layers must share to be comparable, and what linear ones must.
SHARED = ("n_dims", "n_outputs", "mode", "bias")
SHARED_LINEAR = (*SHARED, "n_context_dims", "form")


@single_threaded_blas()
def coefficient_distance(layer_a: LinearAttention, layer_b: LinearAttention) -> float:
    """The Frobenius norm of the difference of the folded coefficients [yau2024: eq. 15].

    Zero iff the layers compute the same function on all real inputs [yau2024: Corollary A.4].
    Only layers of the same form have a distance.  Of forms whose features depend on one another
    it can be positive for the same function; see ``same_function``.
    Cost: O(H e d^3) time; memory for the coefficients while these are few, else for a part.
    """
    for name, layer in (("layer_a", layer_a), ("layer_b", layer_b)):
        if not isinstance(layer, LinearAttention):
            raise InvalidType(
                f"{name} must be a LinearAttention, which alone has folded coefficients; got "
                f"{type(layer).__name__}. For softmax layers see same_function."
            )
    require_alike(layer_a, layer_b, SHARED_LINEAR)
    return _norms(layer_a, layer_b)[0]


def same_function(
    layer_a: AttentionLayer, layer_b: AttentionLayer, tolerance: float = 1e-9
) -> bool:
    """Whether two layers agree on all real inputs, up to ``tolerance`` in their parameters.

    Linear layers: the coefficients agree relative to the larger of the two.  Of other forms than
    the papers' it is enough that the outputs do so on random sequences: they differ there with
    probability one if the layers do, as long as maps are analytic.

    Softmax layers: of the heads of both together, those whose ``attn`` agree relative to the
    largest have values with equal sums in both layers, relative to the largest value.  Sequences
    of any length are meant: on those of one or two tokens more layers agree.  Of layers with rotary
    positions ``attn`` is a function of the offset: it agrees at all offsets, relative to its root
    mean square, and frequencies agree relative to their size (modulo 2 pi: offsets are integers).
    """
    tolerance = require_number("tolerance", tolerance)
    if isinstance(layer_a, LinearAttention) and isinstance(layer_b, LinearAttention):
        require_alike(layer_a, layer_b, SHARED_LINEAR)
        distance, *sizes = _norms(layer_a, layer_b)
        if distance <= tolerance * max(sizes):
            return True
        return not layer_a.layout.is_plain and _same_outputs(layer_a, layer_b, tolerance)
    require_same_kind(layer_a=layer_a, layer_b=layer_b)
    layer_a, layer_b = cast("SoftmaxAttention", layer_a), cast("SoftmaxAttention", layer_b)
    # The heads of one layer and the negated heads of the other have to cancel.
    require_alike(layer_a, layer_b, SHARED)
    heads = head_distances([layer_a, layer_b], tolerance)
    value = np.concatenate([layer_a.value, -layer_b.value])
    constants = np.zeros((2, layer_a.n_outputs))
    if layer_a.bias:
        constants = np.stack([layer.value[:, -1].sum(axis=0) for layer in (layer_a, layer_b)])
        value[:, -1] = 0.0
    _, sums, largest = merged_values(heads, value, tolerance)
    limit = tolerance * max(largest, *(float(norm(constant)) for constant in constants))
    differences = [constants[0] - constants[1], *(total.ravel() for total in sums)]
    return all(float(norm(difference)) <= limit for difference in differences)


@single_threaded_blas()
def _norms(layer_a: LinearAttention, layer_b: LinearAttention) -> tuple[float, float, float]:
    """The norms of the difference of the folded coefficients, and of both."""
    of_parts = [
        [float(norm(each.ravel())) for each in (a - b, a, b)]
        for a, b in zip(_coef_parts(layer_a), _coef_parts(layer_b), strict=True)
    ]
    difference, of_a, of_b = (float(norm(each)) for each in zip(*of_parts, strict=True))
    return difference, of_a, of_b


def _coef_parts(layer: LinearAttention) -> Iterator[NDArray[np.float64]]:
    """The folded coefficients: as one, or for some numbers of the query after the others."""
    layout = layer.layout
    n_each = layer.n_outputs * layout.n_products
    n_queries = len(layout.query)
    if n_each * n_queries <= MOST_TOGETHER:
        yield layer.coef
        return
    _, _, *powers = layer._scaled_heads
    step = max(1, PART_NUMBERS // n_each)
    for first in range(0, n_queries, step):
        folded = layer.folded_queries(slice(first, first + step))
        with np.errstate(over="ignore", under="ignore"):
            part = np.ldexp(folded, sum(powers))
        # A part may vanish beside the others; none may overflow.
        yield (
            part
            if np.all(np.isfinite(part))
            else scaling.restored(folded, sum(powers), "the coefficients")
        )
    for linear in (layer.skip, layer.intercept):
        if linear is not None:
            yield linear


@single_threaded_blas()
def _same_outputs(layer_a: LinearAttention, layer_b: LinearAttention, tolerance: float) -> bool:
    """Whether outputs on random sequences agree, relative to the larger ones."""
    layout, coefs = layer_a.layout, [layer_a.coef, layer_b.coef]
    power = scaling.exponent_for(max(map(scaling.largest_magnitude, coefs))) or 0
    a, b = (scaling.scaled(coef, -power) for coef in coefs)
    X, context = random_sequences(layout)
    sizes = [float(norm(coef_forward(X, coef, layout, context).ravel())) for coef in (a, b, a - b)]
    return sizes[2] <= tolerance * max(sizes[:2])


def random_sequences(layout: Layout, count: int = 14) -> tuple[SequenceBatch, SequenceBatch | None]:
    """Sequences with tokens at all distances that the scales tell apart, and their context."""
    rng = np.random.default_rng(0)
    # J decays differ on J tokens; a few lengths, since a mean and the number of tokens differ too.
    longest = max(scale.start for scale in layout.form.scales) + layout.n_scales
    lengths = [[1, 2, 3, *range(longest + 1, longest + 5)][i % 7] for i in range(count)]
    X = [rng.standard_normal((length, layout.n_dims)) for length in lengths]
    if layout.n_context_dims is None:
        return SequenceBatch.from_sequences(X), None
    others = lengths if layout.form.mode == "causal" else lengths[::-1]
    Z = [rng.standard_normal((length, layout.n_context_dims)) for length in others]
    return SequenceBatch.from_sequences(X), SequenceBatch.from_sequences(Z)


def merged_values(
    heads: HeadDistances, value: NDArray, tolerance: float
) -> tuple[list[list[int]], NDArray[np.float64], float]:
    """Groups of heads with equal attn, the sum of the values of each, and the largest norm."""
    limit = tolerance * heads.sizes.max()
    groups: list[list[int]] = []
    for h, distances in enumerate(heads.distances):
        near = [g for g in groups if np.any(distances[g] <= limit)]
        joined = [*(i for g in near for i in g), h]
        groups = [*(g for g in groups if g not in near), joined]
    sums = np.stack([value[group].sum(axis=0) for group in groups])
    return groups, sums, max(float(norm(V.ravel())) for V in value)


def require_same_kind(**layers: object) -> None:
    """Refuse what is no layer, and layers of which some are linear and some softmax."""
    for name, layer in layers.items():
        if not isinstance(layer, LinearAttention | SoftmaxAttention):
            raise InvalidType(
                f"{name} must be a LinearAttention or a SoftmaxAttention; got "
                f"{type(layer).__name__}. Results hold theirs as .layer, estimators as .layer_."
            )
    if len({isinstance(layer, LinearAttention) for layer in layers.values()}) > 1:
        kinds = " and ".join(type(layer).__name__ for layer in layers.values())
        raise InvalidInput(f"{' and '.join(layers)} must be layers of one kind; got {kinds}.")


def require_softmax(layer: object) -> None:
    """Refuse what is no softmax layer, and layers whose attention depends on the offset."""
    if not isinstance(layer, SoftmaxAttention):
        raise InvalidType(
            f"heads of SoftmaxAttention layers are compared; got {type(layer).__name__}."
        )
    require_no_rotary(
        layer, "this is about heads whose attention is one matrix attn, at whatever offset",
        "of such layers same_function, canonical and match_heads compare heads at all offsets.",
    )  # fmt: skip


def require_alike(layer_a: object, layer_b: object, names: Sequence[str]) -> None:
    """Refuse to compare layers that differ in one of the named properties."""
    for name in names:
        a, b = getattr(layer_a, name), getattr(layer_b, name)
        if a != b:
            raise InvalidInput(
                f"only layers of the same kind can be compared; their {name} are {a!r} and {b!r}."
            )
