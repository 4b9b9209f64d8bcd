"""Compression: heads for given coefficients, and what was lost on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import norm

from polyattn.display import Description, Tabled, head_matrices, table_lines
from polyattn.errors import OutOfRange
from polyattn.form.layout import Layout
from polyattn.form.pairs import fold_heads
from polyattn.heads.data_scale import CoordinateUnits, DataScale, output_exponents
from polyattn.heads.head_counts import least_heads
from polyattn.heads.head_set import HeadSet
from polyattn.heads.linear_terms import Elimination
from polyattn.heads.low_rank_heads import LowRankHeads
from polyattn.heads.tensor_layout import TensorLayout, require_layout
from polyattn.heads.unseen import Unseen
from polyattn.numerics.scaling import TINY, restored
from polyattn.quoting import counted


@dataclass(frozen=True, repr=False)
class Compression(Tabled):
    """Heads that compute given coefficients, exactly or nearly, and the linear terms with them.

    attn : array (H, r, n_keys)
    value : array (H, n_values, e)
    lost : ||sym T_H - S||_F / ||S||_F, where S is the symmetric tensor of the coefficients and
        T_H that of the heads, in units in which the data are of size one (0.0 when S is zero);
        without the directions that change no output (see ``unseen``)
    risk_gap : increase of the sum of squared errors when moments were given, otherwise None
    sentence : what was done and what was lost, for people
    output_error : the largest change of an output on the data beside that output (both root mean
        square), or None where no data were given
    head_scales : array (H,), the scale of each head (see ``Form.scales``); None: all the first
    skip : array (r, e), or None where the form has none
    intercept : array (e,), or None where the form has none
    """

    attn: NDArray[np.float64]
    value: NDArray[np.float64]
    lost: float
    risk_gap: float | None
    sentence: str
    output_error: float | None = None
    head_scales: NDArray[np.intp] | None = None
    skip: NDArray[np.float64] | None = None
    intercept: NDArray[np.float64] | None = None

    @property
    def n_heads(self) -> int:
        """H, the number of heads."""
        return self.attn.shape[0]

    def coef(self, layout: Layout | None = None) -> NDArray[np.float64]:
        """The folded coefficients (e, m, r) of these heads (None: the papers' layer)."""
        if layout is None:
            return fold_heads(self.attn, self.value)
        return layout.coef_of(self.attn, self.value, self.head_scales, self.skip, self.intercept)

    def __repr__(self) -> str:
        return f"Compression({counted(self.n_heads, 'head')}, lost {self.lost:.1e})"

    def describe(self) -> Description:
        """What was done, and how large each head is: norms of attn and value, multiplied."""
        attn, value = (" × ".join(map(str, each.shape[1:])) for each in (self.attn, self.value))
        about = f"{counted(self.n_heads, 'head')}, attn {attn}, value {value}"
        names = ("lost", "output_error", "risk_gap")
        facts = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        # Norms apart: the norm of a product may be beyond float64.
        heads = zip(self.attn, self.value, strict=True)
        rows: list[tuple[Any, ...]] = [
            (h, float(norm(one) * norm(other))) for h, (one, other) in enumerate(heads)
        ]
        columns: tuple[str, ...] = ("head", "size")
        if self.head_scales is not None and self.head_scales.any():
            columns = ("head", "scale", "size")
            rows = [(h, int(self.head_scales[h]), size) for h, size in rows]
        labels = {
            "lost": "lost of the coefficients", "output_error": "change of outputs on the data",
            "risk_gap": "growth of the squared error",
        }  # fmt: skip
        return Description(
            "Heads of a layer", about, self.sentence, facts=facts, labels=labels,
            lines=table_lines(columns, rows) if rows else (),
            matrices=head_matrices(self.attn, self.value),
        )  # fmt: skip


@dataclass(frozen=True)
class Target:
    """Coefficients as a tensor S (J e, n_values, n_keys, r) of norm one, in given units.

    There S * norm * 2**exponent is the truth.  A power of two is exact, and even, so that its
    root can be shared by attn and value.

    linear : the linear terms (e, n), in true units
    data : by which outputs heads are judged, if known
    elimination : how linear terms follow when heads change; None: they stay as they are
    unseen : directions of S that change no output; None: heads have to meet all of S
    """

    tensor: NDArray[np.float64]
    norm: float
    exponent: int
    units: CoordinateUnits
    layout: TensorLayout
    linear: NDArray[np.float64]
    data: DataScale | None = None
    elimination: Elimination | None = None
    unseen: Unseen | None = None

    @classmethod
    def on(
        cls,
        coef: ArrayLike,
        data: DataScale | None = None,
        units: CoordinateUnits | None = None,
        layout: Layout | None = None,
        elimination: Elimination | None = None,
    ) -> Target:
        """From coefficients (e, m, r) of any size, checked, in the units of data, if given."""
        if layout is None and data is not None:
            layout = data.layout
        array, order = require_layout(coef, layout)
        if data is not None:
            units = CoordinateUnits.of(data, array)
        elif units is None:
            units = CoordinateUnits.none(order.layout, len(array))
        products = order.products(array)
        shifts = units.features - units.outputs[:, None, None]
        exponents = (np.frexp(products)[1] + shifts)[products != 0]
        exponent = int(exponents.max()) if exponents.size else 0
        exponent += exponent % 2
        tensor = order.tensor(np.ldexp(products, shifts - exponent))
        norm = float(np.linalg.norm(tensor))
        scaled = tensor / norm if norm > 0 else tensor
        return cls(scaled, norm, exponent, units, order, order.linear(array), data, elimination)

    @property
    def is_zero(self) -> bool:
        """Whether the coefficients of the heads are all zero."""
        return self.norm == 0.0

    def least_heads(self, tolerance: float, rng: np.random.Generator) -> int:
        """A number of heads below which no layer is within ``tolerance`` (0 for zero)."""
        metric, total = self.layout.metric, 0
        for part in self.tensor.reshape(metric.n_scales, -1, *self.tensor.shape[1:]):
            size = float(np.linalg.norm(part))
            if size > tolerance:
                total += least_heads(part / size, tolerance / size, rng, metric.shared)
        return total

    def scaled_tensor(self, coef: NDArray) -> NDArray[np.float64]:
        """Other coefficients (e, m, r) in the units of this tensor, but for the norm."""
        shifts = self.units.features - self.units.outputs[:, None, None] - self.exponent
        return self.layout.tensor(np.ldexp(self.layout.products(coef), shifts)) / self.norm

    def true_products(self, tensor: NDArray) -> NDArray[np.float64]:
        """The products (e, J q, r) of a tensor, in true units: the inverse."""
        shifts = self.units.features - self.units.outputs[:, None, None] - self.exponent
        return np.ldexp(self.layout.folded(tensor) * self.norm, -shifts)

    def visible(self, tensor: NDArray) -> NDArray[np.float64]:
        """The tensor without the directions that change no output."""
        return tensor if self.unseen is None else self.unseen.visible(tensor)

    def lost(self, missed: NDArray) -> float:
        """The part of S that is missed, of what changes outputs."""
        if self.unseen is None:
            return float(np.linalg.norm(missed))
        whole = float(np.linalg.norm(self.visible(self.tensor)))
        return float(np.linalg.norm(self.visible(missed))) / (whole or 1.0)

    def linear_change(self, missed: NDArray) -> NDArray[np.float64]:
        """What the linear terms (e, n) lose when heads miss this, in true units."""
        if self.linear.size and self.elimination is not None:
            return -self.elimination.shifts(-self.true_products(missed))
        if self.linear.size and self.unseen is not None:
            taken = (self.exponent + self.units.outputs)[:, None]
            return np.ldexp(self.unseen.linear(missed) * self.norm, taken)
        return np.zeros_like(self.linear)

    def output_error(self, missed: NDArray) -> float | None:
        """The largest relative change of an output on the data, if known (root mean square)."""
        data = self.data
        if data is None or self.is_zero:
            return None if data is None else 0.0
        # All outputs in units of this tensor, the linear terms with them.
        taken = (self.exponent + self.units.outputs)[:, None]
        linear, change = (
            np.ldexp(terms / self.norm, -taken)
            for terms in (self.linear, self.linear_change(missed))
        )
        tensors = (self.tensor, linear), (missed, change)
        coefs = [
            self.layout.coef(np.ldexp(self.layout.folded(tensor), -self.units.features), terms)
            for tensor, terms in tensors
        ]
        # Each output is compared with itself, so each has units of its own.
        own = output_exponents(coefs[0])
        whole, change = (np.sqrt(data.output_powers(np.ldexp(coef, -own))) for coef in coefs)
        return float(np.max(change / np.where(whole > 0, whole, 1.0)))

    def in_true_units(self, squares: float) -> float:
        """A sum of squares of the scaled tensor for the tensor itself."""
        power = np.array(squares * self.norm**2)
        with np.errstate(over="ignore", under="ignore"):
            result = float(np.ldexp(power, 2 * self.exponent))
        lost = power > 0.0 and result < TINY
        if lost or not np.isfinite(result):
            raise OutOfRange(
                "the squared errors leave the range of float64; "
                f"{'multiply' if lost else 'divide'} the targets by a constant so that they are "
                "of order one."
            )
        return result

    def finish(
        self,
        heads: HeadSet | LowRankHeads,
        sentence: str,
        risk_gap: float | None = None,
        n_heads: int = 1,
    ) -> Compression:
        """Back to true units: balanced heads, padded with zero heads up to ``n_heads``.

        ``sentence`` may hold the fields {heads} and {lost}.
        """
        found = heads.balanced().free
        # The tensor has norm one, or is zero, and so are then the heads.
        missed = self.tensor - found.tensor()
        lost, error = self.lost(missed), self.output_error(missed)
        said = f"relative loss {lost:.1e}"
        if error is not None:
            said = f"outputs on the data change by {error:.1e} of their size"
        skip, intercept = self.layout.terms(self.linear - self.linear_change(missed))
        padding = ((0, max(0, n_heads - len(found))), (0, 0), (0, 0))
        root, half = np.sqrt(self.norm), self.exponent // 2
        value, key = self.layout.in_given_order(found.value, found.key)
        key, value = np.pad(key, padding) * root, np.pad(value, padding) * root
        scales = np.pad(found.scales, padding[0])
        # In true units, too, attn and value are of similar size.
        of_key, of_value = self.units.key, self.units.value
        more = (int(of_key.max()) - int(of_value.max())) // 2
        attn = restored(key, of_key + (half - more), "the heads").transpose(0, 2, 1)
        return Compression(
            attn=np.ascontiguousarray(attn),
            value=restored(value, of_value[scales] + (half + more), "the heads"),
            lost=lost,
            risk_gap=risk_gap,
            sentence=sentence.format(heads=counted(len(value), "head"), lost=said),
            output_error=error,
            head_scales=scales,
            skip=skip,
            intercept=intercept,
        )

    def nothing(self, n_heads: int = 1, risk_gap: float | None = None) -> Compression:
        """Heads that are zero: for the zero function, or one of which the data see nothing."""
        n_outputs, n_values, n_keys, n_queries = self.tensor.shape
        n_scales = self.layout.n_scales
        value = np.zeros((1, n_values, n_outputs // n_scales))
        counts = (1, *[0] * (n_scales - 1))
        heads = HeadSet(value, np.zeros((1, n_keys, n_queries)), counts, self.layout.metric.shared)
        linear = self.linear - self.linear_change(self.tensor)
        what = "Beside its linear terms the function" if linear.any() else "The function"
        sentence = f"{what} is zero; it was written with {{heads}}."
        if not self.is_zero and self.unseen is None:
            sentence = "The data see nothing of the function: {heads} of zeros do as well."
        return self.finish(heads, sentence, risk_gap, n_heads)
