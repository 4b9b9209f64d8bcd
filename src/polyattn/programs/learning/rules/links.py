"""How the parts of one sort can be tied to each other: the constraints a rule may state.

Slots of one sort are split into blocks.  The slots of a block are one variable: equal, or on a
line or circle some fixed steps apart.  A block may be pinned to a constant: a name, or a landmark
of a line.  Slots of different blocks may be anything, equal or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.language.sorts import LINE, NAMES, Sort


@dataclass(frozen=True)
class LinkBlock:
    """Slots that share a variable.

    slots : which slots
    offsets : steps from the variable to each slot; the first is 0
    pin : the constant that the variable is, as a number of the layout, or None
    is_name : whether the constant is a name (not a landmark)
    """

    slots: tuple[int, ...]
    offsets: tuple[int, ...]
    pin: int | None = None
    is_name: bool = False


Links: TypeAlias = tuple[LinkBlock, ...]

# A constant as a number of the layout, and whether it is a name.
Pin: TypeAlias = tuple[int, bool]


def all_links(slots: tuple[int, ...], pins: tuple[Pin, ...], max_offset: int) -> list[Links]:
    """All ways to tie slots of one sort, the plainest first.

    Plain means: few variables, constants and steps.  Few variables put the stricter of two ways
    first: when both say the same about all data, it says what the data show.

    Parameters
    ----------
    slots : the slots of this sort
    pins : the constants that a variable may be, each with whether it is a name
    max_offset : the largest step within a block; 0 for sorts without order
    """
    found = [
        tuple(blocks)
        for groups in _partitions(slots)
        for blocks in product(*(_blocks(group, pins, max_offset) for group in groups))
    ]
    return sorted(found, key=plainness)


def plainness(links: Links) -> tuple[int, int, int]:
    """Length (variables, constants and steps together), looseness, steps: smaller is plainer.

    Variables and landmarks are loose, names are not: what always was the same name stays it.
    """
    steps = sum(abs(offset) for block in links for offset in block.offsets)
    loose = sum(1 if block.pin is None else 2 * (not block.is_name) for block in links)
    return len(links) + steps, loose, steps


def body_pins(sort: Sort, named: Iterable[int]) -> tuple[Pin, ...]:
    """The constants that what is read, matched or asked may be.

    Names are; so are the landmarks of a line.  Landmarks among symbols are not: symbols that are
    given are data, and data are exchangeable.
    """
    landmarks = range(sort.landmarks if sort.kind == LINE else 0)
    return (*((each, False) for each in landmarks), *((each, True) for each in named))


def head_pins(sort: Sort, named: Iterable[int]) -> tuple[int, ...]:
    """The constants that may be written: names, and landmarks of any sort."""
    landmarks = range(0 if sort.kind == NAMES else sort.landmarks)
    return (*landmarks, *named)


def holds(
    links: Links,
    parts: NDArray[np.int64],
    n_numbered: int,
    circle: NDArray[np.int64] | None,
) -> NDArray[np.bool_]:
    """Where parts (slots, n) meet the constraints; ``circle`` (n,) holds the size of a circle."""
    met = np.ones(parts.shape[1], dtype=bool)
    for block in links:
        base = parts[block.slots[0]]
        if block.pin is not None:
            met &= base == block.pin
        for slot, offset in zip(block.slots[1:], block.offsets[1:], strict=True):
            if not offset:
                met &= parts[slot] == base
                continue
            ahead = parts[slot] - base - offset
            met &= (ahead if circle is None else ahead % circle) == 0
            met &= (base < n_numbered) & (parts[slot] < n_numbered)
    return met


def _partitions(slots: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    """All ways to split slots into groups, each group in order."""
    if not slots:
        yield []
        return
    first, rest = slots[0], slots[1:]
    for groups in _partitions(rest):
        yield [(first,), *groups]
        for at, group in enumerate(groups):
            yield [(first, *group), *groups[:at], *groups[at + 1 :]]


def _blocks(group: tuple[int, ...], pins: tuple[Pin, ...], max_offset: int) -> Iterator[LinkBlock]:
    steps = range(-max_offset, max_offset + 1)
    for offsets in product(steps, repeat=len(group) - 1):
        yield LinkBlock(group, (0, *offsets))
        for pin, is_name in pins:
            if not (is_name and any(offsets)):  # there is nothing next to a name
                yield LinkBlock(group, (0, *offsets), pin, is_name)
