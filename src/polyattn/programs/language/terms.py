"""Terms: the smallest thing a layer does, written with patterns.

    write += weight * sum over tokens (read of the token * match of the token) * query of the last

One term joins two attributes of one token, seen or being the last, with one attribute of the
last token: exactly the products G[j, k] x[l] that a linear attention layer can form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import TypeAlias

import numpy as np

from polyattn.programs.language.attributes import Argument, Bindings, Pattern, Value, Variable
from polyattn.programs.language.sorts import CIRCLE, Part, Sort

# Integers are the fast case, and nearly all weights are integers or halves.
Exact: TypeAlias = int | Fraction


def exact(weight: float | Fraction | np.generic) -> Exact:
    """The number itself, as an integer where it is one: a float64 is an integer times 2^e."""
    number = Fraction(weight.item() if isinstance(weight, np.generic) else weight)
    return number.numerator if number.denominator == 1 else number


# The atoms (write, read, match, query) of one product, without the names of attributes.
Entry: TypeAlias = tuple[Value, Value, Value, Value]


@dataclass(frozen=True)
class Unequal:
    """Two arguments, each a variable or a value, are not the same."""

    left: Argument
    right: Argument

    @property
    def variables(self) -> set[str]:
        """The names of its variables."""
        return {side.name for side in (self.left, self.right) if isinstance(side, Variable)}

    def holds(self, bindings: Bindings) -> bool:
        return _bound(self.left, bindings) != _bound(self.right, bindings)

    def __str__(self) -> str:
        return f"{self.left} != {self.right}"


@dataclass(frozen=True)
class Beyond:
    """``left`` lies more than ``steps`` after ``right`` (on a circle: away from it)."""

    left: Variable
    right: Variable
    steps: int
    sort: Sort

    @property
    def variables(self) -> set[str]:
        """The names of its variables."""
        return {self.left.name, self.right.name}

    def holds(self, bindings: Bindings) -> bool:
        left, right = _bound(self.left, bindings), _bound(self.right, bindings)
        if not isinstance(left, int) or not isinstance(right, int):
            return False
        ahead = left - right
        if self.sort.kind != CIRCLE:
            return ahead > self.steps
        return min(ahead % self.sort.size, -ahead % self.sort.size) > self.steps

    def __str__(self) -> str:
        if self.sort.kind == CIRCLE:
            return f"{self.left} more than {self.steps} from {self.right}"
        return f"{self.left} > {self.right} + {self.steps}"


Condition: TypeAlias = Unequal | Beyond


@dataclass(frozen=True)
class Term:
    """One product of a layer, for all values of its variables that meet the conditions.

    Variables of the same name are equal, others may be equal unless a condition forbids it.
    """

    write: Pattern
    read: Pattern
    match: Pattern
    query: Pattern
    weight: float = 1.0
    where: tuple[Condition, ...] = ()

    @property
    def patterns(self) -> tuple[Pattern, Pattern, Pattern, Pattern]:
        """write, read, match, query."""
        return self.write, self.read, self.match, self.query

    @property
    def variables(self) -> dict[str, Sort]:
        """The sort of every variable, as it is where it has the fewest values."""
        found: dict[str, Sort] = {}
        for pattern in self.patterns:
            for name, sort in pattern.variables.items():
                if name not in found or len(sort.parts) < len(found[name].parts):
                    found[name] = sort
        return found

    def allows(self, bindings: Bindings) -> bool:
        """Whether the conditions hold."""
        return all(condition.holds(bindings) for condition in self.where)

    def choices(self, names: Iterable[str], known: Bindings) -> Iterator[Bindings]:
        """All values of some variables, with those known, that meet the conditions on them."""
        own = self.variables
        sorts = {name: own[name] for name in names}
        fitting = [each for each in self.where if each.variables <= known.keys() | sorts.keys()]
        for parts in product(*(sort.parts for sort in sorts.values())):
            bindings = known | dict(zip(sorts, parts, strict=True))
            if all(condition.holds(bindings) for condition in fitting):
                yield bindings

    def entries(self) -> Iterator[Entry]:
        """All products that the term stands for: one for each choice of its variables."""
        for bindings in self.choices(self.variables, {}):
            write, read, match, query = (pattern.fill(bindings) for pattern in self.patterns)
            if write is not None and read is not None and match is not None and query is not None:
                yield write, read, match, query

    def __str__(self) -> str:
        conditions = " and ".join(map(str, self.where))
        both = str(self.read) if self.read == self.match else f"{self.read} & {self.match}"
        text = f"{self.weight:+g} {self.write} <- {both} given {self.query}"
        return f"{text} where {conditions}" if conditions else text


def _bound(argument: Argument, bindings: Bindings) -> Part | None:
    return bindings[argument.name] if isinstance(argument, Variable) else argument
