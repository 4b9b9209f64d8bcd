"""Are two layers the same function?  On all real inputs: iff their coefficients are equal."""

from __future__ import annotations

from scipy.linalg import norm

from polyattn.errors import InvalidInput
from polyattn.model.linear import LinearAttention


def coefficient_distance(layer_a: LinearAttention, layer_b: LinearAttention) -> float:
    """The Frobenius norm of the difference of the folded coefficients [yau2024: eq. 15].

    Zero iff the layers compute the same function on all real inputs [yau2024: Corollary A.4].
    """
    _require_comparable(layer_a, layer_b)
    return float(norm((layer_a.coef - layer_b.coef).ravel()))


def same_function(
    layer_a: LinearAttention, layer_b: LinearAttention, tolerance: float = 1e-9
) -> bool:
    """Whether the coefficients agree up to ``tolerance`` relative to the larger of the two."""
    if not tolerance >= 0:
        raise InvalidInput(f"tolerance must be a number >= 0; got {tolerance!r}.")
    distance = coefficient_distance(layer_a, layer_b)
    size = max(float(norm(layer.coef.ravel())) for layer in (layer_a, layer_b))
    return distance <= tolerance * size


def _require_comparable(layer_a: LinearAttention, layer_b: LinearAttention) -> None:
    for name in ("n_dims", "n_outputs", "mode", "bias"):
        a, b = getattr(layer_a, name), getattr(layer_b, name)
        if a != b:
            raise InvalidInput(
                f"only layers of the same kind can be compared; their {name} are {a!r} and {b!r}."
            )
