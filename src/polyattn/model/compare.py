"""Whether two layers are the same function on all real inputs.

Linear layers: iff their folded coefficients are equal [yau2024: Corollary A.4].  Softmax layers:
iff heads with equal attention have equal sums of values (see ``matching.canonical``).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import norm

from polyattn.errors import InvalidInput, InvalidType
from polyattn.model.layer import AttentionLayer
from polyattn.model.linear import LinearAttention
from polyattn.model.matching import merged_values, require_alike, visible_attn
from polyattn.model.softmax import SoftmaxAttention
from polyattn.numerics.parallel import single_threaded_blas

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
    if isinstance(layer_a, SoftmaxAttention) and isinstance(layer_b, SoftmaxAttention):
        return _same_softmax(layer_a, layer_b, tolerance)
    raise InvalidInput(
        "only layers of the same kind can be compared; got "
        f"{type(layer_a).__name__} and {type(layer_b).__name__}."
    )


def _same_softmax(layer_a: SoftmaxAttention, layer_b: SoftmaxAttention, tolerance: float) -> bool:
    """Whether the heads of one layer and the negated heads of the other cancel."""
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
