"""How answers are rounded: their significant bits, tokens that need few, errors that grow.

Answers of float32, float16 or bfloat16 have 24, 11 or 8 significant bits in whatever array they
come.  An oracle of few bits rounds its tokens, too: whole multiples of one unit, at most 2^8 of
them, are exact in all of these formats, sums included.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Formats of answers by their significant bits, the leading one included.
FORMATS = {8: "bfloat16", 11: "float16", 24: "float32", 53: "float64"}

# Bits of a token that every format holds, and the fewest that describe a direction well.
TOKEN_BITS, FEWEST_BITS = 8, 3

# Numbers that are needed to tell a format: fewer may have few bits by chance.
ENOUGH = 12

# A mean of rounding errors is believed from so many standard errors on: of rounding to the nearest
# one in ten thousand gets there, and answers that are cut off lie beyond twenty.
SURE = 4.0

# Relative noise above this is felt in every step: these then take more queries.
ROUGH = 1e-5

TINY = float(np.finfo(np.float64).tiny)


def significant_bits(answers: NDArray) -> int:
    """The fewest significant bits of FORMATS that hold all answers; 53 where they do not tell.

    Whole numbers, and fewer than ENOUGH different ones, say nothing.
    """
    numbers = np.unique(np.abs(answers[np.isfinite(answers) & (answers != 0)]))
    if len(numbers) < ENOUGH or np.all(numbers == np.rint(numbers)):
        return 53
    digits = np.frexp(numbers)[0]
    for bits in sorted(FORMATS):
        whole = np.ldexp(digits, bits)
        if np.array_equal(whole, np.rint(whole)):
            return bits
    return 53


def token_unit(*sizes: float) -> float:
    """The unit of which tokens are multiples, for entries whose sizes add up to what tokens hold.

    0, tokens as they are, where the smallest would have too few bits beside the largest.
    """
    largest, smallest = sum(sizes), min(sizes)
    if not (smallest > 0 and np.isfinite(largest)):
        return 0.0
    unit = float(2.0 ** (np.ceil(np.log2(largest)) - TOKEN_BITS))
    return unit if smallest >= 2**FEWEST_BITS * unit else 0.0


def in_units(tokens: NDArray, unit: float) -> NDArray[np.float64]:
    """Tokens rounded to multiples of the unit; as they are where that is zero."""
    return np.rint(tokens / unit) * unit if unit > 0 else tokens


def mean_rounding(rows: NDArray, answers: NDArray, whole: NDArray) -> tuple[np.float64, np.float64]:
    """How answers (Q, e), linear in rows (Q, D), are rounded on average: upwards, and off zero.

    Answers that are cut off err by half a unit, downwards or towards zero; ``whole`` (Q, e) is what
    was cut.  Zero where noise explains it, or where the constant of rows holds it.
    """
    basis = np.linalg.qr(rows)[0]
    kinds = np.stack([np.ones_like(whole), np.sign(whole), answers])
    *columns, seen = (kinds - basis @ (basis.T @ kinds)).reshape(3, -1)
    design = np.stack(columns, axis=1)
    found = np.linalg.lstsq(design, seen, rcond=1e-8)[0]
    power = np.sum((seen - design @ found) ** 2) / (len(seen) * (1 - basis.shape[1] / len(basis)))
    variances = power * np.diagonal(np.linalg.pinv(design.T @ design, rcond=1e-16))
    up, off = np.where(found**2 > SURE**2 * variances, found, 0.0)
    return up, off


@dataclass
class AnswerNoise:
    """Variances of the errors of outputs, pooled over residuals: of each output, and by size.

    Of answers y of one output they are proportional to absolute + relative y^2, two numbers for
    all outputs that least squares give.  n : rows so far;  squares (e,) : sums of squared residuals
    """

    squares: NDArray[np.float64]
    n: float = 0.0
    moments: NDArray[np.float64] | None = None

    def add(self, residual: NDArray, answers: NDArray, freedom: float) -> None:
        """Residuals (Q, e) of answers (Q, e); a fit left the part ``freedom`` of their squares."""
        y, r = answers.ravel() ** 2, residual.ravel() ** 2 / freedom
        new = np.array([len(y), y.sum(), y @ y, r.sum(), y @ r])
        self.moments = new if self.moments is None else self.moments + new
        self.squares = self.squares + r.reshape(residual.shape).sum(axis=0)
        self.n += len(residual)

    @property
    def by_size(self) -> tuple[float, float]:
        """Standard deviations: absolute, and relative to the size of an answer."""
        if self.moments is None:
            return 0.0, 0.0
        n, y, yy, r, yr = self.moments
        slope = (n * yr - y * r) / max(n * yy - y * y, TINY)
        slope = float(np.clip(slope, 0.0, r / max(y, TINY)))
        return float(np.sqrt(max(r - slope * y, 0.0) / n)), float(np.sqrt(slope))

    @property
    def level(self) -> float:
        """The mean variance of all outputs."""
        return float(self.squares.mean()) / max(self.n, 1.0)

    def variances(self, answers: NDArray) -> NDArray[np.float64]:
        """Variances (Q, e) of the errors of answers (Q, e)."""
        absolute, relative = self.by_size
        shape = absolute**2 + relative**2 * answers**2
        mean = shape.mean(axis=0)
        level = self.squares / max(self.n, 1.0)
        return shape * (level / np.where(mean > 0, mean, 1.0))
