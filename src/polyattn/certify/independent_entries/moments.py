"""Moments of one entry: read exactly, and refused where no distribution has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational, Real

import numpy as np

from polyattn.errors import InvalidInput, InvalidType, OutOfRange, require_choice
from polyattn.quoting import shown

# m_2, m_4, .. m_12 of distributions that have a name.
NAMED_MOMENTS: dict[str, tuple[Fraction, ...]] = {
    "gaussian": tuple(map(Fraction, (1, 3, 15, 105, 945, 10395))),
    "uniform": tuple(Fraction(1, 2 * k + 1) for k in range(1, 7)),
    "boolean": (Fraction(1),) * 6,
}

# Floats that differ by a few roundings are not told apart, and moments of a distribution on few
# points may miss their inequalities by as much.
ROUNDING = 2.0**-49
SLACK = 1e-9


@dataclass(frozen=True)
class EntryMoments:
    """Even moments m_2, m_4, .. and odd ones m_1, m_3, m_5 (none where all are zero), exactly."""

    even: tuple[Fraction, ...]
    odd: tuple[Fraction, ...] = ()

    @classmethod
    def read(cls, moments: object, odd_moments: object = None) -> EntryMoments:
        """The moments as they were given: a name, or three or six even ones, and three odd ones."""
        if isinstance(moments, str):
            even = NAMED_MOMENTS[require_choice("moments", moments, tuple(NAMED_MOMENTS))]
            exact = True
        else:
            even, exact = _numbers("moments", moments, (3, 6))
        odd: tuple[Fraction, ...] = ()
        if odd_moments is not None:
            odd, _ = _numbers("odd_moments", odd_moments, (3,))
        found = cls(even, odd if any(odd) else ())
        found._require_possible(exact)
        return found

    @property
    def of_one_size(self) -> bool:
        """Whether m_4 = m_2^2: entries then have one magnitude."""
        return self.even[1] == self.even[0] ** 2

    @property
    def unit(self) -> float:
        """m_2^3, the unit of Lambda."""
        return _as_float(self.even[0] ** 3)

    @property
    def of_unit_entries(self) -> list[Fraction]:
        """m_0, m_1, .. of entries divided by the root of m_2; odd ones are taken to be zero."""
        even = [Fraction(1)] + [m / self.even[0] ** k for k, m in enumerate(self.even, 1)]
        return [each for moment in even for each in (moment, Fraction(0))][:-1]

    def in_floats(self) -> list[float]:
        """The same, odd ones as they are, rounded."""
        found = [*map(_as_float, self.of_unit_entries)]
        for k, moment in enumerate(self.odd):
            size = math.sqrt(_as_float(moment**2 / self.even[0] ** (2 * k + 1)))
            found[2 * k + 1] = math.copysign(size, moment)
        return found

    def require_within(self, largest: float) -> None:
        """Refuse a bound of all entries that their moments exceed."""
        square = Fraction(largest) ** 2
        lower = (Fraction(1), *self.even)
        if any(
            m > square * before * Fraction(1 + SLACK)
            for before, m in zip(lower, self.even, strict=False)
        ):
            raise InvalidInput(
                f"largest_entry must be at least as large as every entry; {largest!r} is less than "
                "the moments tell of."
            )

    def _require_possible(self, exact: bool) -> None:
        m2, m4 = self.even[:2]
        if m2 <= 0:
            raise InvalidInput(
                f"the second moment must be > 0; got {float(m2)!r}. Entries that are always zero "
                "say nothing of a layer."
            )
        if not exact and m4 != m2**2 and abs(m4 - m2**2) <= Fraction(ROUNDING) * m4:
            raise InvalidInput(
                "the fourth moment is the square of the second up to rounding, and whether it is "
                "larger decides everything; give both as integers or fractions.Fraction."
            )
        # All entries are ±sqrt(m_2) then; rounding of floats may hide it from what follows.
        powers = [m2 ** (k + 1) for k in range(len(self.even))]
        if m4 == m2**2 and exact and list(self.even) != powers:
            raise InvalidInput(
                "no distribution has these moments: where the fourth is the square of the second, "
                "all entries have one magnitude, and the others are "
                f"{shown(list(map(float, powers)))}."
            )
        unit = self.in_floats()
        # Entries, if odd moments are known, and squares of entries: m_0, m_2, .. and m_2, m_4, ..
        sequences = [unit[0::2], unit[2::2]] + ([unit[:7]] if self.odd else [])
        if not all(map(_is_moment_sequence, sequences)):
            raise InvalidInput(
                f"no distribution has the moments {shown([float(m) for m in self.even])}"
                + (f" and {shown([float(m) for m in self.odd])}" if self.odd else "")
                + ": for example m_4 is at least m_2^2 and m_2 m_6 at least m_4^2."
            )


def _is_moment_sequence(sequence: Sequence[float]) -> bool:
    """Whether the matrix s[i + j] is positive semidefinite, up to rounding."""
    size = (len(sequence) + 1) // 2
    matrix = np.array([[sequence[i + j] for j in range(size)] for i in range(size)])
    diagonal = np.diagonal(matrix)
    if np.any(diagonal <= 0):
        return False
    roots = np.sqrt(diagonal)
    return bool(np.linalg.eigvalsh(matrix / roots / roots[:, None])[0] >= -SLACK)


def _numbers(
    name: str, given: object, counts: tuple[int, ...]
) -> tuple[tuple[Fraction, ...], bool]:
    """Exact values, and whether all of them were integers or fractions."""
    wanted = " or ".join(map(str, counts))
    if not isinstance(given, Sequence | np.ndarray) or len(given) not in counts:
        names = "m_2, m_4, m_6, ..." if name == "moments" else "m_1, m_3, m_5"
        raise InvalidInput(f"{name} must be {wanted} numbers, {names}; got {shown(given)}.")
    values = [each.item() if isinstance(each, np.generic) else each for each in given]
    for value in values:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InvalidType(f"{name} must be real numbers; got {shown(value)}.")
        if not isinstance(value, Rational) and not math.isfinite(value):
            raise InvalidInput(f"{name} must be finite; got {shown(value)}.")
    exact = all(isinstance(value, Rational) for value in values)
    return tuple(Fraction(value) for value in values), exact


def _as_float(number: Fraction) -> float:
    """A float of full precision, or an error."""
    try:
        value = float(number)
    except OverflowError:
        value = math.inf
    if number != 0 and not np.finfo(np.float64).tiny <= abs(value) < math.inf:
        raise OutOfRange(
            "products of these moments do not fit float64; give the moments of entries that were "
            "divided by their size, and multiply lambda_min by its sixth power."
        )
    return value
