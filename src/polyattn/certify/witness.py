"""Witness: two layers with the same training loss, and an input on which they differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.domains import CustomDomain
from polyattn.certify.domains.spaces import Direction
from polyattn.errors import InvalidInput, PolyattnError
from polyattn.features.pairs import pair_index
from polyattn.model import LinearAttention
from polyattn.numerics.arrays import ranges_of_rows, require_float64
from polyattn.reference.layer import forward as reference_forward
from polyattn.reference.layer import with_constant
from polyattn.sequences import SequenceBatch

if TYPE_CHECKING:
    from polyattn.certify.certificate import Certificate


@dataclass(frozen=True, eq=False)
class Witness:
    """Layers a and b agree on all training data and differ on ``input``.

    Attributes
    ----------
    layer_a, layer_b : LinearAttention
    input : array (n, d)
        A sequence of the domain, at most a few tokens long.
    output_a, output_b : arrays
        What the layers make of it, by the slow reference forward pass.
    difference : float
        The largest difference of the two outputs.
    training_disagreement : float | None
        The largest difference on the training data; None where only their sums are known.
    """

    layer_a: LinearAttention
    layer_b: LinearAttention
    input: NDArray[np.float64]
    output_a: NDArray[np.float64] = field(repr=False)
    output_b: NDArray[np.float64] = field(repr=False)
    difference: float
    training_disagreement: float | None

    @property
    def sentence(self) -> str:
        """What the witness shows, in words."""
        known = self.training_disagreement
        agree = "" if known is None else f" (they differ by at most {known:.1e} there)"
        return (
            f"Two layers explain the training data equally well{agree}, yet differ by "
            f"{self.difference:.3g} on a sequence of {len(self.input)} tokens."
        )


def find_witness(
    certificate: Certificate, direction: Direction, layer: LinearAttention | None
) -> Witness:
    """The witness along a direction of coefficients (p,) that the training data do not see."""
    rows, exponent, size = None, 0, 1.0
    if certificate.evidence is not None:
        rows, exponent = certificate.evidence.rows, certificate.evidence.token_exponent
        size = certificate.evidence.token_size
    if rows is not None:
        require_float64(rows.batch.values, "the layers of a witness are float64; X")
    vector = as_floats(direction)
    domain, mode, bias = certificate.domain, certificate.mode, certificate.bias
    if isinstance(domain, CustomDomain):
        scaled = domain.separating_input(vector, mode, bias, exponent)
    else:
        rng = np.random.default_rng(0)
        scaled = domain.separating_sequence(vector, certificate.n_dims, bias, size, rng)
    # The direction as a layer whose largest output on the input is one.
    coef = vector.reshape(-1, certificate.n_dims + bias)
    value = float(np.max(np.abs(layer_of_coef(coef, mode, bias)(scaled))))
    if value == 0.0:
        raise PolyattnError("no input of the domain was found on which the direction shows.")
    difference = layer_of_coef(coef / value, mode, bias, -3 * exponent)
    layer_a, layer_b = _two_layers(difference, layer)
    sequence = np.ldexp(scaled, exponent)
    output_a, output_b = (_reference_output(one, sequence) for one in (layer_a, layer_b))
    apart, agreed = float(np.max(np.abs(output_a - output_b))), None
    if rows is not None:
        agreed = _largest_difference(layer_a, layer_b, rows.batch)
    # Of the difference on the input, the layers may show a millionth on the training data.
    if not apart > 0 or (agreed is not None and agreed > 1e-6 * apart):
        raise PolyattnError(
            f"the two layers differ by {apart:.1e} on the input that was found, and by {agreed} on "
            "the training data: that shows nothing. Certify with method='exact', or give the "
            "domain as an explicit set of sequences."
        )
    return Witness(layer_a, layer_b, sequence, output_a, output_b, apart, agreed)


def as_floats(direction: Direction) -> NDArray[np.float64]:
    """The direction with largest entry one; integers of any size are divided first."""
    if isinstance(direction, tuple):
        largest = max(abs(entry) for entry in direction)
        return np.array([entry / largest for entry in direction])
    return direction / np.abs(direction).max()


def layer_of_coef(
    coef: NDArray[np.float64], mode: str, bias: bool, exponent: int = 0
) -> LinearAttention:
    """A layer with one output and coefficients ``coef * 2**exponent`` (q, d), without rounding.

    Head j reads coordinate j of the tokens: V_j = e_j, A_j[l, k] = coef[(j <= k), l].
    """
    width = coef.shape[1]
    first, second = pair_index(width)
    attn = np.zeros((width, width, width))
    attn[first, :, second] = coef
    value = np.eye(width)[:, :, None]
    # Halves: a coefficient may be outside float64 where two factors are not.
    half = exponent // 2
    return LinearAttention(np.ldexp(attn, exponent - half), np.ldexp(value, half), mode, bias)


def _two_layers(
    difference: LinearAttention, layer: LinearAttention | None
) -> tuple[LinearAttention, LinearAttention]:
    """Minus and plus half the difference; or the given layer, and it plus the difference."""
    mode, bias = difference.mode, difference.bias
    if layer is None:
        halves = (-0.5 * difference.value, 0.5 * difference.value)
        minus, plus = (LinearAttention(difference.attn, half, mode, bias) for half in halves)
        return minus, plus
    if (layer.n_dims, layer.mode, layer.bias) != (difference.n_dims, mode, bias):
        raise InvalidInput(
            f"the layer must have {difference.n_dims} coordinates, mode {mode!r} and bias={bias}, "
            f"like the certificate; got {layer!r}."
        )
    value = np.zeros((difference.n_heads, difference.value.shape[1], layer.n_outputs))
    value[:, :, 0] = difference.value[:, :, 0]
    more = LinearAttention(
        np.concatenate([layer.attn, difference.attn]), np.concatenate([layer.value, value]),
        mode, bias,
    )  # fmt: skip
    return layer, more


def _reference_output(layer: LinearAttention, sequence: NDArray) -> NDArray[np.float64]:
    tokens = with_constant(sequence) if layer.bias else np.asarray(sequence, float)
    return reference_forward(layer.attn, layer.value, tokens, layer.mode)


def _largest_difference(
    layer_a: LinearAttention, layer_b: LinearAttention, batch: SequenceBatch
) -> float:
    """Over all training sequences; the first few by the reference forward pass too."""
    largest, pairs = 0.0, 0
    for sequence in batch:
        pairs += len(sequence) ** 2
        if pairs > 4096:
            break
        apart = _reference_output(layer_a, sequence) - _reference_output(layer_b, sequence)
        largest = max(largest, float(np.max(np.abs(apart))))
    for first, stop in ranges_of_rows(batch.offsets, 1 << 16):
        part = batch.part(first, stop)
        outputs = zip(layer_a(part), layer_b(part), strict=True)
        largest = max(largest, *(float(np.max(np.abs(a - b))) for a, b in outputs))
    return largest
