"""The schema: which coordinates of a token mean what, how outputs are rounded, when to stop.

With it encodings, which write a machine and its input as a prompt, and decoding: token after
token, and what came out read back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, starmap
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType, OutOfRange, require_integer
from polyattn.programs.language.attributes import ONE_HOT, Attribute, Pattern, Value
from polyattn.programs.language.sorts import Sort
from polyattn.progress import report

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
            raise InvalidInput(f"the stop rule names unknown attributes: {sorted(unknown)}.")

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
    def coordinate_names(self) -> tuple[str, ...]:
        """What each coordinate means, for a person to read: ``key(0, 1)``."""
        return tuple(atom_text(name, value, 1) for name, value in self.atoms)

    @cached_property
    def blocks(self) -> dict[str, slice]:
        """The coordinates of each attribute."""
        ends = np.cumsum([0, *(len(each.values) for each in self.attributes)]).tolist()
        blocks = starmap(slice, pairwise(ends))
        return dict(zip((each.name for each in self.attributes), blocks, strict=True))

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
                nearest = np.rint(block)
                # Also false for what is not a number.
                if not np.all(np.abs(nearest) < 2.0**63):
                    worst = np.max(np.abs(block))
                    raise OutOfRange(
                        f"the layer writes {worst:.3g} into attribute {attribute.name!r}; a token "
                        "holds integers below 2^63. A layer that writes such numbers has not "
                        "learned the program: give it more traces."
                    )
                into[...] = nearest
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
        unknown = sorted(set(sizes) - set(self.sorts))
        if unknown:
            raise InvalidInput(f"resize takes sizes of {sorted(self.sorts)}; got {unknown}.")
        sorts = [sort for attribute in self.attributes for sort in attribute.sorts]
        largest = {name: max(each.size for each in sorts if each.name == name) for name in sizes}
        larger = {name: require_integer(name, size) - largest[name] for name, size in sizes.items()}
        return replace(
            self,
            attributes=tuple(each.resized(larger) for each in self.attributes),
            stop=tuple(replace(p, attribute=p.attribute.resized(larger)) for p in self.stop),
        )

    def show(self, token: Token) -> str:
        """A token for a person to read: ``key(0, 1) state(2)``."""
        return " ".join(atom_text(name, value, times) for (name, value), times in token.items())

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
            f"{atom_text(*atom, 1)} would be held about 2^{abs(times).bit_length()} times. Use "
            "smaller counts or weights, or fewer steps."
        )
    return times


def atom_text(name: str, value: Value, times: int) -> str:
    """An atom of a token for a person to read: ``-letter(1)``."""
    inside = value if isinstance(value, str) else ", ".join(map(str, value))
    sign = {1: "", -1: "-"}.get(times, f"{times}*")
    return f"{sign}{name}({inside})" if inside else f"{sign}{name}"


# Progress is reported every so many tokens.
REPORTED = 1 << 10

# The arguments and the options of a task.
Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


class Predictor(Protocol):
    """What can say which token comes next: the interpreter, or a layer."""

    def start(self, prompt: list[Token]) -> None:
        """Begin with the tokens of a prompt."""

    def next_token(self) -> Token:
        """The token that comes next; it is appended."""


@dataclass(frozen=True)
class Decoded:
    """What came after a prompt, and whether it ended by the stop rule or by the limit."""

    tokens: list[Token]
    stopped: bool


@dataclass(frozen=True)
class Task:
    """One run: the prompt, how many tokens may follow, and how to read them.

    ``endless``: without the stop rule it would go on; the limit cuts it off.
    """

    prompt: list[Token]
    limit: int
    read: Callable[[Decoded], Any]
    endless: bool = False


class Encoding(ABC):
    """What a schema of the library knows about the machines it was made for."""

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """The sizes by the names that the library uses: n_states, n_letters, ..."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The schema of these sizes."""

    @abstractmethod
    def task(self, *given: Any, **options: Any) -> Task:
        """The run of a machine on an input; errors say what is wrong with them."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, machine: Any = None, given: Any = None) -> Arguments:
        """Arguments and options of ``task``: a random machine and input, unless they are given."""

    def everything(self) -> Iterator[tuple[Any, ...]]:
        """The arguments of ``task`` for every machine and every input, where that is finite."""
        raise InvalidInput(f"{type(self).__name__} cannot list all machines and inputs.")

    def resize(self, **sizes: int) -> Schema:
        """The schema of other sizes; what is not given stays."""
        unknown = set(sizes) - set(self.sizes)
        if unknown:
            raise InvalidInput(f"resize takes {', '.join(self.sizes)}; got {sorted(unknown)}.")
        return type(self)(**(self.sizes | sizes)).schema


def decode(schema: Schema, predictor: Predictor, prompt: list[Token], limit: int) -> Decoded:
    """At most ``limit`` tokens after the prompt, or up to the one that the stop rule names."""
    if not prompt:
        raise InvalidInput("a prompt needs at least one token to go on from.")
    predictor.start(prompt)
    tokens: list[Token] = []
    while len(tokens) < limit:
        token = predictor.next_token()
        tokens.append(token)
        if len(tokens) % REPORTED == 0:
            report(len(tokens), limit)
        if schema.is_last(token):
            return Decoded(tokens, stopped=True)
    return Decoded(tokens, stopped=False)


def run_encoded(
    schema: Schema, predictor: Predictor, given: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Write what was given as a prompt, decode, and read what came out."""
    task = task_of(schema, given, options)
    return task.read(decode(schema, predictor, task.prompt, task.limit))


def task_of(schema: Schema, given: tuple[Any, ...], options: dict[str, Any]) -> Task:
    """The run of a machine on an input, by the encoding of the schema."""
    if schema.encoding is None:
        raise InvalidInput(
            "this schema has no encoding of machines and inputs: decode a prompt of tokens with "
            "decode(prompt, limit), or give the schema an encoding."
        )
    return schema.encoding.task(*given, **options)
