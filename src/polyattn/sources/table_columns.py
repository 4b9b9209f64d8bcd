"""Which columns of a table are what, checked against the columns that a table has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

from polyattn.errors import FileFormatError, InvalidInput, InvalidType, PolyattnError
from polyattn.files.strict_json import json_digest
from polyattn.quoting import shown
from polyattn.sources.arrow_tables import (
    ArrowType,
    arrow,
    is_real,
    plain_type,
    require_real,
    require_target,
)


@dataclass(frozen=True)
class TableColumns:
    """The names of the columns of a table in long format, or of one with lists.

    Names are texts; columns of frames of pandas may be called by anything else.

    sequence : names the sequence to which a token belongs; rows of a sequence stand together
    order : the position of a token within its sequence; None: as the rows stand
    tokens : one column per coordinate, or of lists
    targets : one column per output; empty without targets
    weight : of a sequence, the same in all its rows; None: each counts once
    """

    sequence: str | None
    order: str | None
    tokens: tuple[str, ...]
    targets: tuple[str, ...]
    weight: str | None

    @classmethod
    def named(
        cls,
        sequence: str | None,
        order: str | None,
        tokens: Sequence[str] | str | None,
        targets: Sequence[str] | str | None,
        weight: str | None,
        kind: type = str,
    ) -> TableColumns:
        """From names as a user gives them; a single one may stand without a list.

        kind : what a name may be
        """
        for role, name in (("sequence", sequence), ("order", order), ("weight", weight)):
            if name is not None and not isinstance(name, kind):
                raise InvalidType(f"{role} must be the name of a column; got {shown(name)}.")
        columns = cls(
            sequence, order, _names("tokens", tokens, kind), _names("targets", targets, kind),
            weight,
        )  # fmt: skip
        if not columns.tokens:
            raise InvalidInput("tokens must name at least one column; got none.")
        return columns

    @property
    def used(self) -> list[str]:
        """All names, each once."""
        several = (self.sequence, self.order, self.weight, *self.tokens, *self.targets)
        return list(dict.fromkeys(name for name in several if name is not None))

    @property
    def digest(self) -> str:
        """Which columns are what, briefly: a file that is read by others is other data."""
        return json_digest(list(astuple(self)))[:16]

    def without_targets(self) -> TableColumns:
        """The same columns but for the targets, which are then neither read nor looked at."""
        return replace(self, targets=())

    def require_in(
        self, names: Sequence[str], place: str, ambiguous: type[PolyattnError] = FileFormatError
    ) -> None:
        """Refuse a table without one of the columns, or with two of one name."""
        for name in self.used:
            if name not in names:
                texts = [each for each in names if isinstance(each, str)]
                near = get_close_matches(name, texts, n=1) if isinstance(name, str) else []
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise InvalidInput(
                    f"{place} has no column {name!r}.{hint} Its columns are {shown(list(names))}."
                )
            if names.count(name) > 1:
                raise ambiguous(
                    f"{place} has {names.count(name)} columns called {name!r}; rename them."
                )

    def identifier(self, place: str = "the table") -> str:
        """The column that names the sequence, which a table in long format needs."""
        if self.sequence is None:
            raise InvalidInput(
                f"{place} holds one token per row: give sequence=, the column that names the "
                "sequence. Only columns of lists hold one sequence per row."
            )
        return self.sequence


class Allowed(NamedTuple):
    """What a table may hold beside numbers: labels as targets, tokens with missing values."""

    labels: bool = False
    missing: bool = False


NUMBERS_ALONE = Allowed()


def label_column(columns: TableColumns) -> str:
    """The one column that holds labels of classes."""
    if len(columns.targets) != 1:
        raise InvalidInput(
            f"labels of classes are one column; targets names {len(columns.targets)}: "
            f"{shown(list(columns.targets))}."
        )
    return columns.targets[0]


def token_names(columns: TableColumns, n_dims: int) -> tuple[str, ...] | None:
    """What coordinates are called; None where a column of lists holds several of them."""
    return columns.tokens if len(columns.tokens) == n_dims else None


def have_lists(columns: TableColumns, kinds: dict[str, ArrowType]) -> bool:
    """Whether the tokens stand in columns of lists: one row per sequence."""
    return any(is_list(plain_type(kinds[name])) for name in columns.tokens)


def require_long_types(columns: TableColumns, kinds: dict[str, ArrowType], place: str) -> None:
    """Refuse columns of a table in long format whose types cannot be used."""
    identifier = columns.identifier(place)
    others = [columns.weight] if columns.weight is not None else []
    for name in (*columns.tokens, *others):
        require_real(name, plain_type(kinds[name]), place)
    for name in columns.targets:
        require_target(name, plain_type(kinds[name]), place)
    if columns.order is not None:
        require_order(columns.order, plain_type(kinds[columns.order]), place)
    require_identifier(identifier, plain_type(kinds[identifier]), place)


def require_order(name: str, kind: ArrowType, place: str) -> None:
    """Refuse an order that is no number and no time: of texts, '10' stands before '9'."""
    types = arrow().types
    if is_real(kind) or types.is_temporal(kind) or types.is_null(kind):
        return
    raise InvalidType(
        f"{place}: order must be a column of numbers, dates or times; {name!r} holds {kind}. "
        "Convert it first."
    )


def require_identifier(name: str, kind: ArrowType, place: str) -> None:
    """Refuse names of sequences that cannot be compared."""
    types = arrow().types
    # Arrow does not compare floats of 16 bits.
    if types.is_nested(kind) or types.is_float16(kind):
        raise InvalidType(
            f"{place}: sequence must be a column of numbers, texts or times that can be compared; "
            f"{name!r} holds {kind}. Convert it first."
        )


def is_list(kind: ArrowType) -> bool:
    """Whether a column of this type holds lists, of equal length or not."""
    types = arrow().types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _names(role: str, names: Any, kind: type) -> tuple[str, ...]:
    alone = isinstance(names, str) or not isinstance(names, Iterable)
    several = () if names is None else (names,) if alone else tuple(names)
    if not all(isinstance(name, kind) for name in several):
        raise InvalidType(f"{role} must be a list of names of columns; got {shown(names)}.")
    twice = next((name for name in several if several.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"{role} names the column {twice!r} twice; name it once.")
    return several
