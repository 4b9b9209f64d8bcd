"""Names of coordinates: what the columns of a table are called goes with its sequences."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from polyattn.errors import InvalidInput, InvalidType
from polyattn.quoting import shown
from polyattn.sequences.frame_columns import is_indexed

# So many names stand in a message.
MOST_SHOWN = 24


def checked_names(names: Sequence[str] | None, n_dims: int) -> tuple[str, ...] | None:
    """Names as a user gives them, one text for each coordinate; None without any."""
    if names is None:
        return None
    several = not isinstance(names, str | bytes) and isinstance(names, Iterable)
    if not several or not all(isinstance(each, str) for each in names):
        raise InvalidType(
            "coordinate_names must be a list of texts, one for each coordinate; got "
            f"{shown(names)}."
        )
    texts = tuple(str(each) for each in names)
    if len(texts) != n_dims:
        raise InvalidInput(
            f"coordinate_names must be {n_dims} texts, one for each coordinate of a token; got "
            f"{len(texts)}: {shown(list(texts))}."
        )
    return texts


def names_of(X: Any) -> tuple[str, ...] | None:
    """What the coordinates of sequences are called: of a batch, a source, a frame with an index."""
    if is_indexed(X):
        return column_texts(X.columns)
    names = getattr(X, "coordinate_names", None)
    return names if isinstance(names, tuple) else None


def column_texts(columns: Iterable[Hashable]) -> tuple[str, ...]:
    """What columns are called, as texts: those of pandas may be called by numbers or pairs."""
    return tuple(str(name) for name in columns)


def common_names(of_parts: Iterable[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """The names of parts that are put together; those without any go with the others."""
    known = list(dict.fromkeys(names for names in of_parts if names is not None))
    if not known:
        return None
    for other in known[1:]:
        require_same_names(other, known[0], "in one part of the data", "in another")
    return known[0]


def require_same_names(
    names: Sequence[str] | None,
    seen: Sequence[str] | None,
    here: str = "of X",
    there: str = "that were fitted",
) -> None:
    """Refuse other names than were seen, or another order; nameless sequences are let in.

    here, there : whose the names are, in words
    """
    if names is None or seen is None or tuple(names) == tuple(seen):
        return
    came, wanted = list(names), list(seen)
    strange = [each for each in came if each not in wanted]
    lacking = [each for each in wanted if each not in came]
    if strange or lacking or len(came) != len(wanted):
        more = f"; not among the latter: {shown(strange)}" if strange else ""
        more += f"; lacking: {shown(lacking)}" if lacking else ""
    else:
        at = next(j for j, (one, two) in enumerate(zip(came, wanted, strict=True)) if one != two)
        more = f"; they are the same in another order, from coordinate {at} on"
    raise InvalidInput(
        f"the coordinates {here} are {_listed(came)}, and those {there} {_listed(wanted)}{more}. "
        "Give the columns that were fitted in their order, or arrays without names if the order "
        "is right."
    )


def in_description(names: Sequence[str] | None) -> dict[str, Any]:
    """Names among the facts of a description: a text for people, and the list; without any none."""
    if names is None:
        return {}
    return {"coordinates": _listed(list(names)), "coordinate_names": list(names)}


def _listed(names: list[str]) -> str:
    """The names in their order, of many the first ones and their number."""
    if len(names) <= MOST_SHOWN:
        return ", ".join(map(shown, names))
    return f"{', '.join(map(shown, names[:MOST_SHOWN]))}, ... ({len(names)} in all)"
