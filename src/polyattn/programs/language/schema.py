"""The schema: which coordinates of a token mean what, how outputs are rounded, when to stop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType, OutOfRange, require_integer
from polyattn.programs.language.attributes import ONE_HOT, Attribute, Pattern, Value
from polyattn.programs.language.sorts import Sort

if TYPE_CHECKING:
    from polyattn.programs.language.encoding import Encoding

# Tokens as rows of numbers are int64, so no token holds more.
LARGEST_COUNT = (1 << 63) - 1

# One thing that a token says: this attribute holds this value.
Atom: TypeAlias = tuple[str, Value]

# A token in words: how often it holds each atom (1, or differences such as +1 and -1).
Token: TypeAlias = dict[Atom, int]


@dataclass(frozen=True)
class Schema:
    """The attributes of tokens, one block of coordinates after the other.

    Parameters
    ----------
    attributes : tuple of Attribute
    stop : tuple of Pattern
        A token that holds one of these is the last one; so is a token that holds nothing.
    stop_without : tuple of str
        A token that has none of these attributes is the last one.
    encoding : Encoding, optional
        How machines and inputs are written as prompts, and what came out is read.

    ``schema.px`` is the attribute ``px``.
    """

    attributes: tuple[Attribute, ...]
    stop: tuple[Pattern, ...] = ()
    stop_without: tuple[str, ...] = ()
    encoding: Encoding | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        wrong: list[object] = [each for each in self.attributes if not isinstance(each, Attribute)]
        wrong += [each for each in self.stop if not isinstance(each, Pattern)]
        if wrong:
            raise InvalidType(f"attributes and patterns make a schema, not {wrong[0]!r}.")
        names = [attribute.name for attribute in self.attributes]
        if not names:
            raise InvalidInput("a schema needs at least one attribute.")
        taken = [name for name in names if hasattr(Schema, name) or name == "attributes"]
        if taken:
            raise InvalidInput(f"an attribute cannot be called {taken[0]}: schemas have their own.")
        if len(set(names)) != len(names):
            raise InvalidInput(f"a schema needs attributes of different names; got {names}.")
        unknown = {*self.stop_without, *(each.attribute.name for each in self.stop)} - {*names}
        if unknown:
            raise InvalidInput(f"the stop rule speaks of unknown attributes: {sorted(unknown)}.")

    def __getattr__(self, name: str) -> Attribute:
        for attribute in self.__dict__.get("attributes", ()):
            if attribute.name == name:
                return attribute
        raise AttributeError(f"the schema has no attribute {name!r}")

    @property
    def n_dims(self) -> int:
        """d, the coordinates of a token."""
        return len(self.atoms)

    @cached_property
    def sorts(self) -> dict[str, Sort]:
        """The sorts by name, each as it is where it has the most named values."""
        found: dict[str, Sort] = {}
        for attribute in self.attributes:
            for sort in attribute.sorts:
                if sort.name not in found or len(found[sort.name].named) < len(sort.named):
                    found[sort.name] = sort
        return found

    @cached_property
    def atoms(self) -> tuple[Atom, ...]:
        """What each coordinate means."""
        return tuple((each.name, value) for each in self.attributes for value in each.values)

    @cached_property
    def coordinates(self) -> dict[Atom, int]:
        """The coordinate of each atom: the inverse of ``atoms``."""
        return {atom: at for at, atom in enumerate(self.atoms)}

    @cached_property
    def blocks(self) -> dict[str, slice]:
        """The coordinates of each attribute."""
        ends = np.cumsum([0, *(len(each.values) for each in self.attributes)]).tolist()
        return {
            each.name: slice(start, stop)
            for each, start, stop in zip(self.attributes, ends, ends[1:], strict=False)
        }

    def token(self, **content: Any) -> Token:
        """A token from values: ``token(key=(0, 1), state=2)``, differences as ``{0: -1, 1: 1}``."""
        token: Token = {}
        for name, given in content.items():
            if name not in self.blocks:
                has = [*self.blocks]
                raise InvalidInput(f"the schema has no attribute {name!r}; it has {has}.")
            held = getattr(self, name).held(given)
            token |= {(name, value): times for value, times in held.items()}
        return token

    def encode(self, tokens: Iterable[Token]) -> NDArray[np.int64]:
        """Tokens as rows of numbers (n, d)."""
        listed = list(tokens)
        rows = np.zeros((len(listed), self.n_dims), dtype=np.int64)
        for row, token in zip(rows, listed, strict=True):
            for atom, times in token.items():
                if atom not in self.coordinates:
                    raise InvalidInput(f"{atom!r} is no attribute and value of this schema.")
                row[self.coordinates[atom]] = require_count(atom, times)
        return rows

    def decode(self, row: NDArray) -> Token:
        """One row of numbers (d,) as a token."""
        return {self.atoms[at]: int(row[at]) for at in np.flatnonzero(row)}

    def round(self, outputs: NDArray) -> NDArray[np.int64]:
        """Outputs (..., d) of a layer as tokens: the nearest ones, block by block.

        A one-hot block becomes the value of its largest number if that exceeds one half, and
        nothing otherwise; other blocks become the nearest integers.
        """
        rounded = np.zeros(outputs.shape, dtype=np.int64)
        for attribute in self.attributes:
            block, into = (each[..., self.blocks[attribute.name]] for each in (outputs, rounded))
            if attribute.rounding == ONE_HOT:
                best = np.argmax(block, axis=-1, keepdims=True)
                held = np.take_along_axis(block, best, axis=-1) > 0.5
                np.put_along_axis(into, best, held.astype(np.int64), axis=-1)
            else:
                into[...] = np.rint(block)
        return rounded

    def is_last(self, token: Token) -> bool:
        """Whether the stop rule says that nothing comes after this token."""
        if not token:
            return True
        if self.stop_without and not any(name in self.stop_without for name, _ in token):
            return True
        return not self.endings.isdisjoint(token)

    def resize(self, **sizes: int) -> Schema:
        """The same schema with other numbers of values, by the names of the sorts.

        Where a sort has several sizes (a line of L places and one of L + 1), the largest is
        given, and the others stay as much smaller as they were.
        Schemas of the library know their own words: ``resize(n_states=5, n_letters=4)``.
        """
        if self.encoding is not None:
            return self.encoding.resize(**sizes)
        unknown = set(sizes) - set(self.sorts)
        if unknown:
            raise InvalidInput(
                f"resize takes sizes of {sorted(self.sorts)}; got {sorted(unknown)}."
            )
        largest: dict[str, int] = {}
        for sort in (sort for attribute in self.attributes for sort in attribute.sorts):
            largest[sort.name] = max(sort.size, largest.get(sort.name, 0))
        larger = {name: require_integer(name, size) - largest[name] for name, size in sizes.items()}
        return replace(
            self,
            attributes=tuple(each.resized(larger) for each in self.attributes),
            stop=tuple(replace(p, attribute=p.attribute.resized(larger)) for p in self.stop),
        )

    def show(self, token: Token) -> str:
        """A token for a person to read: ``key(0, 1) state(2)``."""
        return " ".join(_said(name, value, times) for (name, value), times in token.items())

    @cached_property
    def endings(self) -> frozenset[Atom]:
        """The atoms that the stop rule names."""
        return frozenset(
            (name, value)
            for name, value in self.atoms
            for pattern in self.stop
            if name == pattern.attribute.name and pattern.match(value) is not None
        )


def require_count(atom: Atom, times: int) -> int:
    """How often a token holds an atom, refused beyond 64 bits."""
    if abs(times) > LARGEST_COUNT:
        raise OutOfRange(
            "a token holds a value at most 2^63 - 1 times, as 64-bit integers do; "
            f"{_said(*atom, 1)} would be held about 2^{abs(times).bit_length()} times. Use smaller "
            "counts or weights, or fewer steps."
        )
    return times


def _said(name: str, value: Value, times: int) -> str:
    inside = value if isinstance(value, str) else ", ".join(map(str, value))
    sign = {1: "", -1: "-"}.get(times, f"{times}*")
    return f"{sign}{name}({inside})" if inside else f"{sign}{name}"
