"""Compression: heads for given coefficients, and what was lost on the way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, OutOfRange
from polyattn.features.pairs import fold_tensor, n_pairs, unfold_coef
from polyattn.heads.algebra import balanced, layer_tensor
from polyattn.heads.data_scale import CoordinateUnits, DataScale, output_exponents
from polyattn.numerics.scaling import TINY, restored
from polyattn.quoting import counted


@dataclass(frozen=True, repr=False)
class Compression:
    """Heads that compute given coefficients, exactly or nearly.

    attn : array (H, d, d)
    value : array (H, d, e)
    lost : ||sym T_H - S||_F / ||S||_F, where S is the symmetric tensor of the coefficients and
        T_H that of the heads, in units in which the data are of size one (0.0 when S is zero)
    risk_gap : increase of the sum of squared errors when moments were given, otherwise None
    sentence : what was done and what was lost, for people
    output_error : the largest change of an output on the data beside that output (both root mean
        square), or None where no data were given
    """

    attn: NDArray[np.float64]
    value: NDArray[np.float64]
    lost: float
    risk_gap: float | None
    sentence: str
    output_error: float | None = None

    @property
    def n_heads(self) -> int:
        """H, the number of heads."""
        return self.attn.shape[0]

    def __repr__(self) -> str:
        return f"Compression({counted(self.n_heads, 'head')}, lost {self.lost:.1e})"

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class Target:
    """Coefficients as a tensor of norm one, S (e, d, d, d), in given units.

    There S * norm * 2**exponent is the truth.  A power of two is exact, and even, so that its
    root can be shared by attn and value.  ``data``: by which outputs heads are judged, if known.
    """

    tensor: NDArray[np.float64]
    norm: float
    exponent: int
    units: CoordinateUnits
    data: DataScale | None = None

    @classmethod
    def on(
        cls, coef: ArrayLike, data: DataScale | None = None, units: CoordinateUnits | None = None
    ) -> Target:
        """From coefficients (e, q, d) of any size, checked, in the units of data, if given."""
        array = require_coef(coef)
        if data is not None:
            units = CoordinateUnits.of(data, array)
        elif units is None:
            ones = np.zeros(array.shape[2], dtype=np.intp)
            units = CoordinateUnits(ones, ones, np.zeros(len(array), dtype=np.intp))
        shifts = units.features - units.outputs[:, None, None]
        exponents = (np.frexp(array)[1] + shifts)[array != 0]
        exponent = int(exponents.max()) if exponents.size else 0
        exponent += exponent % 2
        tensor = unfold_coef(np.ldexp(array, shifts - exponent))
        norm = float(np.linalg.norm(tensor))
        return cls(tensor / norm if norm > 0 else tensor, norm, exponent, units, data)

    @property
    def is_zero(self) -> bool:
        """Whether the coefficients are all zero."""
        return self.norm == 0.0

    def scaled_heads(self, compression: Compression) -> tuple[NDArray, NDArray]:
        """The (value, key) of the scaled tensor: the inverse of ``finish``, but for a factor."""
        root, half = np.sqrt(self.norm), self.exponent // 2
        key = np.ldexp(compression.attn.transpose(0, 2, 1), -(self.units.key + half)) / root
        return np.ldexp(compression.value, -(self.units.value + half)) / root, key

    def output_error(self, value: NDArray, key: NDArray) -> float | None:
        """The largest relative change of an output on the data, if known (root mean square)."""
        data = self.data
        if data is None:
            return None
        tensors = self.tensor, self.tensor - layer_tensor(value, key)
        coefs = [np.ldexp(fold_tensor(tensor), -self.units.features) for tensor in tensors]
        # Each output is compared with itself, so each has units of its own.
        taken = output_exponents(coefs[0])
        whole, change = (np.sqrt(data.output_powers(np.ldexp(coef, -taken))) for coef in coefs)
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
        value: NDArray,
        key: NDArray,
        sentence: str,
        risk_gap: float | None = None,
        n_heads: int = 1,
    ) -> Compression:
        """Back to true units: balanced heads, padded with zero heads up to ``n_heads``.

        ``sentence`` may hold the fields {heads} and {lost}.
        """
        value, key = balanced(value, key)
        # The tensor has norm one, or is zero, and so are then the heads.
        lost = float(np.linalg.norm(self.tensor - layer_tensor(value, key)))
        error = self.output_error(value, key)
        said = f"relative loss {lost:.1e}"
        if error is not None:
            said = f"outputs on the data change by {error:.1e} of their size"
        padding = ((0, max(0, n_heads - len(value))), (0, 0), (0, 0))
        root, half = np.sqrt(self.norm), self.exponent // 2
        key, value = np.pad(key, padding) * root, np.pad(value, padding) * root
        # In true units, too, attn and value are of similar size.
        more = (int(self.units.key.max()) - int(self.units.value.max())) // 2
        attn = restored(key, self.units.key + (half - more), "the heads").transpose(0, 2, 1)
        return Compression(
            attn=np.ascontiguousarray(attn),
            value=restored(value, self.units.value + (half + more), "the heads"),
            lost=lost,
            risk_gap=risk_gap,
            sentence=sentence.format(heads=counted(len(value), "head"), lost=said),
            output_error=error,
        )

    def nothing(self, n_heads: int = 1, risk_gap: float | None = None) -> Compression:
        """Heads that are zero: for the zero function, or one of which the data see nothing."""
        n_outputs, width = self.tensor.shape[:2]
        value, key = np.zeros((1, width, n_outputs)), np.zeros((1, width, width))
        sentence = "The function is zero; it was written with {heads}."
        if not self.is_zero:
            sentence = "The data see nothing of the function: {heads} of zeros do as well."
        return self.finish(value, key, sentence, risk_gap, n_heads)


def require_coef(coef: ArrayLike) -> NDArray[np.float64]:
    """Folded coefficients (e, q, d) as float64, finite, with q = d(d+1)/2."""
    array = np.asarray(coef, dtype=np.float64)
    if array.ndim != 3 or 0 in array.shape or array.shape[1] != n_pairs(array.shape[2]):
        raise InvalidInput(
            "coef must have shape (e, q, d) with q = d(d+1)/2, as layer.coef has; "
            f"got {array.shape}."
        )
    if not np.all(np.isfinite(array)):
        raise InvalidInput("coef contains NaN or infinity; remove them before compressing.")
    return array
