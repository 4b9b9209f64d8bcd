"""Powers of two that keep sixth powers of the data inside float64.

The moments of cubic features are sixth-degree in the tokens: tokens of size 1e60 already
overflow them.  Ordinary data are left alone (exponent 0).  Otherwise tokens and targets are
divided by a power of two, which is exact, and the power is put back at the very end.  What then is
infinite, or below the normal numbers of float64 and has lost digits, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import OutOfRange
from polyattn.numerics.arrays import pieces

# Within 2**±40 the sixth power times any realistic count stays within 2**±300.
ORDINARY_EXPONENT = 40

# Coordinates may differ in size by this power of two: its sixth power is still above 2**-1000.
COMPARABLE_EXPONENT = 160

# Products of the smallest output and the smallest feature are at most this power of two below
# those of the largest: 1022, less the digits of a product and of its residual (53 each), and
# what ordinary data may lie below one (160).
COMPARABLE_PRODUCTS = 750

# Squares of outputs that differ by no more than this power of two are both there.
COMPARABLE_SQUARES = 430

EPS, TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)

# The squared residual of 64 roundings, beside targets of size one: as good as none.
NEGLIGIBLE_RISK = (64 * EPS) ** 2

# Numbers that lose more than this share of themselves to underflow are refused.
LOST_SHARE = 2.0**-50

# What to do about answers that do not fit.
OF_ORDER_ONE = "multiply the inputs or the targets by a constant so that both are of order one."

# Products of tokens and targets times the largest weight lie within this power of two.
WEIGHTED_EXPONENT = 1010

# numpy finds the maxima of many short columns slowly, those of fewer and longer rows fast.
WIDE_ROW = 512


def exponent_for(magnitude: float) -> int | None:
    """The exponent by which data of this largest magnitude are divided; None if all zero."""
    if magnitude == 0.0:
        return None
    exponent = int(np.frexp(magnitude)[1])
    return 0 if abs(exponent) <= ORDINARY_EXPONENT else exponent


def token_exponent(coordinates: NDArray[np.float64]) -> int | None:
    """The exponent by which tokens with coordinates of these sizes (d,) are divided."""
    known = coordinates[coordinates > 0]
    exponent = exponent_for(float(known.max(initial=0.0)))
    # Ordinary tokens below one are not left alone where a coordinate far below them would vanish.
    if exponent == 0 and known.min() < 2.0**-COMPARABLE_EXPONENT:
        return int(np.frexp(known.max())[1])
    return exponent


def largest_magnitude(array: NDArray) -> float:
    """The largest absolute value (0.0 when there is none)."""
    if not isinstance(array, np.ndarray):
        return float(column_sizes(array).max(initial=0.0))
    # float() first: the magnitude of the smallest integer does not fit its own type.
    return max(abs(float(array.max())), abs(float(array.min()))) if array.size else 0.0


def require_powers(values: NDArray, name: str, power: int) -> None:
    """Refuse numbers of which squares, or powers up to ``power``, would leave float64 in sums."""
    largest = largest_magnitude(values)
    # Within 2**±900 there is room for counts and for weights of ordinary size.
    if largest and not -450.0 <= np.log2(largest) <= 900.0 / power:
        raise OutOfRange(
            f"{name} holds numbers up to {largest:.1e}, whose powers leave float64: give tokens of "
            "ordinary size, and multiply the weights of the heads by what they were divided by."
        )


def column_magnitudes(blocks: Iterable[NDArray], n_columns: int) -> NDArray[np.float64]:
    """The largest absolute value of each column over blocks of rows, shape (n_columns,)."""
    largest = np.zeros(n_columns)
    if n_columns == 0:
        return largest
    for block in blocks:
        # The same columns again and again in wide rows, a view; then the rows that remain.
        fold = WIDE_ROW // n_columns if block.flags.c_contiguous else 1
        whole = len(block) // fold * fold if fold > 1 else 0
        for wide in (block[:whole].reshape(-1, max(fold, 1) * n_columns), block[whole:]):
            for side in (wide.max(axis=0), wide.min(axis=0)) if len(wide) else ():
                magnitudes = np.abs(side.astype(np.float64)).reshape(-1, n_columns)
                np.maximum(largest, magnitudes.max(axis=0), out=largest)
    return largest


def column_sizes(array: Any) -> NDArray[np.float64]:
    """The largest absolute value of each column of an array, which may be known already.

    array : (n, columns), or what is read like one (``sources.read_array``)
    """
    if not isinstance(array, np.ndarray) and array.is_whole:
        return np.asarray(array.magnitudes)
    return column_magnitudes(pieces(array), array.shape[1])


def require_comparable(coordinates: NDArray[np.float64], outputs: NDArray[np.float64]) -> None:
    """Refuse sizes of coordinates (d,) or outputs (e,) so different that products underflow."""
    between = spread(coordinates)
    if between > COMPARABLE_EXPONENT:
        raise OutOfRange(
            f"the coordinates of X (the constant of bias included) are of sizes from "
            f"{_range(coordinates)}; sums of their sixth-degree products do not "
            "fit float64. Rescale the coordinates so that they are of similar size."
        )
    if spread(outputs) > COMPARABLE_PRODUCTS - 3.0 * between:
        raise OutOfRange(
            f"the outputs of Y are of sizes from {_range(outputs)}; sums of their products with "
            "third-degree products of tokens do not fit float64. Rescale the outputs so that they "
            "are of similar size, or fit them apart."
        )


def require_comparable_squares(outputs: NDArray[np.float64]) -> None:
    """Refuse outputs so different in size that squares of the small underflow beside the large."""
    if spread(outputs) > COMPARABLE_SQUARES:
        raise OutOfRange(
            f"the outputs of Y are of sizes from {_range(outputs)}; sums of their squares do not "
            "fit float64. Rescale the outputs so that they are of similar size."
        )


def spread(sizes: NDArray[np.float64]) -> float:
    """How many powers of two lie between the smallest and the largest size that is not zero."""
    known = sizes[sizes > 0]
    return float(np.log2(known.max()) - np.log2(known.min())) if len(known) else 0.0


def _range(sizes: NDArray[np.float64]) -> str:
    known = sizes[sizes > 0]
    return f"{known.min():.1e} to {known.max():.1e}"


def require_weighable(weight: float, coordinates: NDArray, outputs: NDArray) -> None:
    """Refuse a largest weight that takes sums of products of tokens and targets out of float64."""
    if weight == 0.0 or not np.any(coordinates):
        return
    # Sums are of sixth degree in tokens, or of third degree times a target, all of them scaled.
    tokens = np.ldexp(coordinates[coordinates > 0], -(token_exponent(coordinates) or 0))
    largest, smallest = 6.0 * np.log2(tokens.max()), 6.0 * np.log2(tokens.min())
    if np.any(outputs):
        of_targets = exponent_for(float(outputs.max())) or 0
        smallest = min(smallest, 0.5 * smallest + np.log2(outputs[outputs > 0].min()) - of_targets)
    exponent = float(np.log2(weight))
    if exponent + largest > WEIGHTED_EXPONENT or exponent + smallest < -WEIGHTED_EXPONENT:
        raise OutOfRange(
            f"sums of products of tokens (of sizes {_range(coordinates)}) and targets times a "
            f"sample_weight of {weight:.3g} do not fit float64. Multiply all weights by a "
            "constant so that the largest is of order one."
        )


def scaled(array: NDArray, exponent: int) -> NDArray:
    """``array * 2**exponent``; the very array when the exponent is 0."""
    return array if exponent == 0 else np.ldexp(array, exponent)


def of_order_one(array: NDArray) -> tuple[NDArray, int]:
    """The array divided by a power of two where it is of extreme size, and the exponent."""
    exponent = exponent_for(largest_magnitude(array)) or 0
    return scaled(array, -exponent), exponent


def restored(
    array: NDArray,
    exponent: int | NDArray[np.intp],
    what: str,
    sizes: NDArray[np.float64] | None = None,
    advice: str = OF_ORDER_ONE,
) -> NDArray:
    """``array * 2**exponent``, refused when the answer leaves the range of float64.

    sizes : by what the entries of ``array[i]`` count beside one another, if that is known; then
        the answer is also refused where one of the ``array[i]`` loses digits that count
    advice : what to do about a refusal
    """
    if not np.any(exponent):
        return array
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(array, exponent)
    unfit = ~np.isfinite(result)
    if np.any(array) and not np.any(np.abs(result) >= TINY):
        unfit = array != 0.0
    elif sizes is not None and not np.any(unfit):
        losses = np.abs(np.ldexp(result, -exponent) - array) * sizes
        whole = np.max(np.abs(array) * sizes, axis=tuple(range(1, array.ndim)), keepdims=True)
        unfit = losses > LOST_SHARE * whole
    if np.any(unfit):
        # Say of what size the largest of the entries that do not fit would be.
        exponents = np.broadcast_to(exponent, array.shape)[unfit]
        decimal = np.max(np.log2(np.abs(array[unfit])) + exponents) * np.log10(2.0)
        raise OutOfRange(
            f"{what} would be of size about 1e{decimal:+.0f}, which float64 cannot hold; {advice}"
        )
    return result


def as_risk(scaled_risk: float, target_exponent: int, negligible: float = NEGLIGIBLE_RISK) -> float:
    """A risk in the units of the targets; refused where it overflows, or is lost to underflow.

    A scaled risk of up to ``negligible`` is rounding, and may underflow.
    """
    with np.errstate(over="ignore", under="ignore"):
        risk = float(np.ldexp(scaled_risk, 2 * target_exponent))
    lost = scaled_risk > negligible and risk < TINY
    if lost or not np.isfinite(risk):
        raise OutOfRange(
            f"the risk would be about {scaled_risk:.1e} * 2**{2 * target_exponent}, which float64 "
            f"cannot hold; {'multiply' if lost else 'divide'} targets and outputs by a constant."
        )
    return risk


def as_doubt(scaled_doubt: float, target_exponent: int) -> float:
    """A bound of the rounding of a risk, in the units of the targets: never rounded down."""
    doubt = as_risk(scaled_doubt, target_exponent, negligible=np.inf)
    return doubt if scaled_doubt == 0.0 or doubt >= TINY else float(np.nextafter(doubt, np.inf))


def rounded_up(bounds: NDArray, exponent: int | NDArray[np.intp]) -> NDArray[np.float64]:
    """``bounds * 2**exponent``, where bounds are >= 0: never less, infinity where too large."""
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(bounds, exponent)
    small = (bounds > 0) & (result < TINY)
    return np.where(small, np.nextafter(result, np.inf), result)
