"""Witness: two layers with the same training loss, and an input on which they differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.domains import CustomDomain
from polyattn.certify.domains.separating import grid_of, largest_value
from polyattn.certify.domains.spaces import Direction
from polyattn.certify.literal_forward import literal_forward
from polyattn.errors import InvalidInput, PolyattnError
from polyattn.form.layout import Layout
from polyattn.model import LinearAttention
from polyattn.numerics.arrays import ranges_of_rows, require_float64
from polyattn.stats.rows import Rows

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
    context : array (n', d') | None
        What it attends to, where that is another sequence.
    output_a, output_b : arrays
        What the layers make of it, by the formula, token by token.
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
    context: NDArray[np.float64] | None = field(default=None, repr=False)

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
        if rows.context is not None:
            require_float64(rows.context.values, "the layers of a witness are float64; context")
    vector, layout, domain = as_floats(direction), certificate.layout, certificate.domain
    if isinstance(domain, CustomDomain):
        sequence, context = domain.separating_input(vector, layout, exponent)
    else:
        rng = np.random.default_rng(0)
        sequence, context = domain.separating_input(vector, layout, size, exponent, rng)
    # The direction as a layer whose largest output on the input is one.
    value = largest_value(vector, layout, sequence, context, exponent)
    if value == 0.0:
        raise PolyattnError("no input of the domain was found on which the direction shows.")
    difference = layer_of_coef(grid_of(vector, layout) / value, layout, -3 * exponent)
    layer_a, layer_b = two_layers(difference, layer)
    output_a, output_b = (literal_forward(one, sequence, context) for one in (layer_a, layer_b))
    apart, agreed = float(np.max(np.abs(output_a - output_b))), None
    if rows is not None:
        agreed = _largest_difference(layer_a, layer_b, rows)
    # Of the difference on the input, the layers may show a millionth on the training data.
    if not apart > 0 or (agreed is not None and agreed > 1e-6 * apart):
        advice = "Certify with method='exact', or give the domain as an explicit set of sequences."
        if isinstance(direction, tuple):
            advice = "The direction of the certificate is exact, and no layer in float64 has it."
        raise PolyattnError(
            f"the two layers differ by {apart:.1e} on the input that was found, and by {agreed} on "
            f"the training data: that shows nothing. {advice}"
        )
    return Witness(layer_a, layer_b, sequence, output_a, output_b, apart, agreed, context)


def as_floats(direction: Direction) -> NDArray[np.float64]:
    """The direction with largest entry one; integers of any size are divided first."""
    if isinstance(direction, tuple):
        largest = max(abs(entry) for entry in direction)
        return np.array([entry / largest for entry in direction])
    return direction / np.abs(direction).max()


def layer_of_coef(coef: NDArray[np.float64], layout: Layout, exponent: int = 0) -> LinearAttention:
    """A layer with one output and coefficients ``coef * 2**exponent`` (m, r), without rounding.

    Head c of a scale reads column c of the values: V_c = e_c, A_c[l, b] = coef[(c, b), l].
    """
    pairs, form, n_queries = layout.pairs, layout.form, len(layout.query)
    heads, of_values, scales = [], [], []
    for number in range(layout.n_scales):
        attn = np.zeros((pairs.n_values, n_queries, pairs.n_keys))
        rows = coef[number * len(pairs) : (number + 1) * len(pairs), :n_queries]
        attn[pairs.first[0], :, pairs.first[1]] = rows
        heads.append(attn)
        of_values.append(np.eye(pairs.n_values)[:, :, None])
        scales += [number] * pairs.n_values
    # Halves: a coefficient may be outside float64 where two factors are not.
    half = exponent // 2
    attn = np.ldexp(np.concatenate(heads), exponent - half)
    value = np.ldexp(np.concatenate(of_values), half)
    constants: dict[str, Any] = {}
    if form.skip:
        constants["skip"] = np.ldexp(coef[layout.n_products, :n_queries][:, None], exponent)
    if form.intercept:
        constants["intercept"] = np.ldexp(coef[-1, -1:], exponent)
    return LinearAttention(
        attn, value, form=form, n_dims=layout.n_dims, n_context_dims=layout.n_context_dims,
        head_scales=np.array(scales), **constants,
    )  # fmt: skip


def _with_value(layer: LinearAttention, factor: float) -> LinearAttention:
    """The layer with all outputs multiplied by a number."""
    return LinearAttention(
        layer.attn, factor * layer.value, form=layer.form, n_dims=layer.n_dims,
        n_context_dims=layer.n_context_dims, head_scales=layer.head_scales,
        skip=None if layer.skip is None else factor * layer.skip,
        intercept=None if layer.intercept is None else factor * layer.intercept,
    )  # fmt: skip


def two_layers(
    difference: LinearAttention, layer: LinearAttention | None
) -> tuple[LinearAttention, LinearAttention]:
    """Minus and plus half the difference; or the given layer, and it plus the difference."""
    if layer is None:
        return _with_value(difference, -0.5), _with_value(difference, 0.5)
    if layer.layout != difference.layout:
        raise InvalidInput(
            f"the layer must have {difference.n_dims} coordinates and the form "
            f"{difference.form!r}, like the certificate; got {layer!r}."
        )
    n_outputs = layer.n_outputs

    def beside(own: NDArray | None, more: NDArray | None) -> NDArray | None:
        """The linear terms of both, of which the difference has one output."""
        if own is None or more is None:
            return own
        total = np.array(own)
        total[..., :1] += more
        return total

    value = np.zeros((difference.n_heads, difference.value.shape[1], n_outputs))
    value[:, :, 0] = difference.value[:, :, 0]
    attn = np.concatenate([layer.attn, difference.attn])
    value = np.concatenate([layer.value, value])
    more = LinearAttention(
        attn, value, form=layer.form, n_dims=layer.n_dims, n_context_dims=layer.n_context_dims,
        head_scales=np.concatenate([layer.head_scales, difference.head_scales]),
        skip=beside(layer.skip, difference.skip),
        intercept=beside(layer.intercept, difference.intercept),
    )  # fmt: skip
    return layer, more


def _largest_difference(layer_a: LinearAttention, layer_b: LinearAttention, rows: Rows) -> float:
    """Over all training sequences; the first few by the formula too."""
    largest, pairs = 0.0, 0
    contexts = repeat(None) if rows.context is None else rows.context
    for sequence, context in zip(rows.batch, contexts, strict=False):
        pairs += len(sequence) ** 2
        if pairs > 4096:
            break
        outputs = (literal_forward(each, sequence, context) for each in (layer_a, layer_b))
        largest = max(largest, float(np.max(np.abs(np.subtract(*outputs)))))
    for first, stop in ranges_of_rows(rows.batch.offsets, 1 << 16):
        part = rows.part(first, stop)
        more = {} if part.context is None else {"context": part.context}
        both = zip(layer_a(part.batch, **more), layer_b(part.batch, **more), strict=True)
        largest = max(largest, *(float(np.max(np.abs(a - b))) for a, b in both))
    return largest
