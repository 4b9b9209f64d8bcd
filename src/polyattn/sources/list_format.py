"""Rows of a table with columns of lists, one row per sequence, as sequences with targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType
from polyattn.quoting import counted, shown
from polyattn.sequences import OwnedBatch, SequenceBatch
from polyattn.sources.arrow_tables import (
    ArrowType,
    Column,
    Table,
    arrow,
    gaps_as_nan,
    is_text,
    matrix,
    numbers,
    plain_type,
    require_no_gap,
    require_real,
    require_target,
    text_targets,
)
from polyattn.sources.long_format import label_texts
from polyattn.sources.source import ChunkData, TokenLabels
from polyattn.sources.table_columns import (
    NUMBERS_ALONE,
    Allowed,
    TableColumns,
    is_list,
    require_identifier,
)


def list_data(
    table: Table, columns: TableColumns, mode: str, place: str, allowed: Allowed = NUMBERS_ALONE
) -> ChunkData:
    """What a table of one row per sequence holds.

    Tokens are several columns of lists of numbers, one per coordinate, or a single one of lists
    of tokens.  Targets are columns of numbers, one per sequence, or of lists, one per token, of
    which mode "last" takes the last.

    table : decoded (``plain_table``), with at least one row
    place : what messages call the table
    allowed : what may stand in it beside numbers

    Guarantee and cost as in ``long_data``.
    """
    names = None
    if columns.sequence is not None:
        identifiers = table.column(columns.sequence)
        require_no_gap(identifiers, columns.sequence, lambda row: f"{place}, row {row}")
        names = numbers(identifiers)

    def words(i: int) -> str:
        sequence = f"row {i} of what was read" if names is None else shown(str(names[i]))
        return f"{place}, sequence {sequence}"

    batch = _batch(table, columns.tokens, "tokens", words, allowed.missing)
    weights = None if columns.weight is None else _scalars(table, (columns.weight,), words)[:, 0]
    targets: NDArray | SequenceBatch | TokenLabels | None = None
    texts = [name for name in columns.targets if is_text(_leaf(table.column(name).type))]
    if texts:
        targets = _labels(table.column(texts[0]), texts[0], mode, batch, words, allowed.labels)
    elif columns.targets:
        targets = _targets(table, columns.targets, mode, batch, words)
    return ChunkData(batch, targets=targets, weights=weights, names=names)


def require_list_types(columns: TableColumns, kinds: dict[str, ArrowType], place: str) -> None:
    """Refuse columns of a table with lists whose types cannot be used."""
    if columns.order is not None:
        raise InvalidInput(
            f"{place} holds lists, whose entries stand in their order; leave order= out."
        )
    for role, names in (("tokens", columns.tokens), ("targets", columns.targets)):
        depths = {name: _depth(plain_type(kinds[name])) for name in names}
        if len(set(depths.values())) > 1 or (len(depths) > 1 and 2 in depths.values()):
            raise InvalidType(
                f"{place}: {role} must be one column of lists of tokens, or several columns of "
                f"lists of numbers; got {', '.join(f'{n!r}: {kinds[n]}' for n in names)}."
            )
        check = require_target if role == "targets" else require_real
        for name in names:
            check(name, _leaf(plain_type(kinds[name])), place)
            if depths[name] > 2:
                raise InvalidType(f"{place}: the column {name!r} holds {kinds[name]}, too deep.")
    if columns.weight is not None:
        require_real(columns.weight, plain_type(kinds[columns.weight]), place)
    if columns.sequence is not None:
        require_identifier(columns.sequence, plain_type(kinds[columns.sequence]), place)


def list_width(names: tuple[str, ...], kinds: dict[str, ArrowType], first_row: Table) -> int:
    """How many coordinates the tokens (or targets) in these columns have.

    first_row : a table of one row, looked at where lists of tokens do not say their size
    """
    kind = plain_type(kinds[names[0]]) if names else None
    if kind is None or _depth(kind) < 2:
        return len(names)
    inner = plain_type(kind.value_type)
    if arrow().types.is_fixed_size_list(inner):
        return int(inner.list_size)
    tokens = first_row.column(names[0])[0].as_py()
    if not tokens or not tokens[0]:
        raise InvalidInput(f"the first sequence in the column {names[0]!r} has no tokens.")
    return len(tokens[0])


def _batch(
    table: Table,
    names: tuple[str, ...],
    what: str,
    words: Callable[[int], str],
    missing: bool = False,
) -> SequenceBatch:
    """The lists of a column of lists of tokens, or of several columns of numbers side by side."""
    columns, offsets = [], None
    for name in names:
        flat, borders = _flat(table.column(name), name, words)
        if offsets is not None and not np.array_equal(borders, offsets):
            i = int(np.argmax(np.diff(borders) != np.diff(offsets)))
            raise InvalidInput(
                f"{words(i)}: the lists of {names[0]!r} and {name!r} have unequal lengths, "
                f"{np.diff(offsets)[i]} and {np.diff(borders)[i]}."
            )
        offsets = borders
        columns.append(flat)
    assert offsets is not None  # noqa: S101  (there is at least one name)
    empty = np.flatnonzero(np.diff(offsets) == 0)
    if len(empty):
        raise InvalidInput(f"{words(int(empty[0]))} has no tokens; each needs at least one.")

    def token_words(token: int) -> str:
        i = int(np.searchsorted(offsets, token, side="right")) - 1
        return f"{words(i)}, token {token - int(offsets[i])}"

    if is_list(columns[0].type):
        values = _vectors(columns[0], names[0], token_words)
    else:
        side_by_side = arrow().table(dict(zip(names, columns, strict=True)))
        if missing:
            side_by_side = gaps_as_nan(side_by_side, names)
        for name in names:
            require_no_gap(side_by_side.column(name), name, token_words)
        values = matrix(side_by_side, names)
    try:
        return OwnedBatch(values, offsets, what, missing=missing)
    except InvalidInput:
        finite = np.isfinite(values) | (np.isnan(values) if missing else False)
        if finite.all():
            raise
    token = int(np.argwhere(~finite)[0, 0])
    raise InvalidInput(
        f"{token_words(token)}: the {what} hold NaN or infinity there; remove or impute them."
    )


def _vectors(tokens: Column, name: str, words: Callable[[int], str]) -> NDArray:
    """Lists of equally many numbers as an array (n_tokens, n_dims)."""
    flat, borders = _flat(tokens, name, words)
    lengths = np.diff(borders)
    if np.any(lengths != lengths[0]):
        i = int(np.argmax(lengths != lengths[0]))
        raise InvalidInput(
            f"{words(i)}: the column {name!r} has {counted(int(lengths[i]), 'coordinate')} there "
            f"and {lengths[0]} in its first token; all tokens need the same number."
        )
    width = int(lengths[0])
    require_no_gap(flat, name, lambda i: words(i // max(width, 1)))
    return matrix(arrow().table({name: flat}), (name,)).reshape(len(tokens), width)


def _targets(
    table: Table,
    names: tuple[str, ...],
    mode: str,
    batch: SequenceBatch,
    words: Callable[[int], str],
) -> NDArray | SequenceBatch:
    if not is_list(table.column(names[0]).type):
        if mode != "last":
            raise _one_per_sequence(names[0], mode, words)
        return _scalars(table, names, words)
    targets = _batch(table, names, "targets", words)
    _require_lengths(targets.lengths, batch, names[0], words)
    return targets.values[targets.offsets[1:] - 1] if mode == "last" else targets


def _labels(
    column: Column,
    name: str,
    mode: str,
    batch: SequenceBatch,
    words: Callable[[int], str],
    labels: bool,
) -> NDArray | TokenLabels:
    """Texts, one per sequence, or a list of them with one per token."""
    require_no_gap(column, name, words)
    if not labels:
        raise text_targets(name, words(0), str(column[0]))
    if not is_list(column.type):
        if mode != "last":
            raise _one_per_sequence(name, mode, words)
        return label_texts(numbers(column), name, words)
    flat, borders = _flat(column, name, words)
    require_no_gap(flat, name, lambda at: words(_owner(borders, at)))
    _require_lengths(np.diff(borders), batch, name, words)
    texts = label_texts(numbers(flat), name, lambda at: words(_owner(borders, at)))
    return texts[borders[1:] - 1] if mode == "last" else TokenLabels(texts, borders)


def _owner(borders: NDArray[np.int64], entry: int) -> int:
    """The list in which an entry stands."""
    return int(np.searchsorted(borders, entry, side="right")) - 1


def _one_per_sequence(name: str, mode: str, words: Callable[[int], str]) -> InvalidInput:
    return InvalidInput(
        f"{words(0)}: mode {mode!r} needs one target per token; the column {name!r} has one per "
        "sequence. Give a column of lists."
    )


def _require_lengths(
    lengths: NDArray, batch: SequenceBatch, name: str, words: Callable[[int], str]
) -> None:
    """Refuse lists of targets that are not as long as those of the tokens."""
    different = lengths != batch.lengths
    if np.any(different):
        i = int(np.argmax(different))
        raise InvalidInput(
            f"{words(i)} has {counted(int(batch.lengths[i]), 'token')} and "
            f"{counted(int(lengths[i]), 'target')} in {name!r}; a list of targets has "
            "one per token, and one target per sequence is a column of numbers."
        )


def _scalars(table: Table, names: tuple[str, ...], words: Callable[[int], str]) -> NDArray:
    for name in names:
        require_no_gap(table.column(name), name, words)
    values = matrix(table, names)
    if not np.isfinite(values).all():
        row, j = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise InvalidInput(
            f"{words(row)}: the column {names[j]!r} holds {values[row, j]}; remove or impute it."
        )
    return values


def _flat(
    column: Column, name: str, words: Callable[[int], str]
) -> tuple[Column, NDArray[np.int64]]:
    """The entries of all lists one after the other, and where each list begins and ends."""
    from pyarrow import compute

    require_no_gap(column, name, words)
    lengths = numbers(compute.list_value_length(column)).astype(np.int64)
    return compute.list_flatten(column), np.concatenate([[0], np.cumsum(lengths)])


def _depth(kind: ArrowType) -> int:
    return 1 + _depth(plain_type(kind.value_type)) if is_list(kind) else 0


def _leaf(kind: ArrowType) -> Any:
    return _leaf(plain_type(kind.value_type)) if is_list(kind) else plain_type(kind)
