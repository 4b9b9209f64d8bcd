"""The header of a .npy: shape and type of the numbers that follow, whatever the file may hold."""

from __future__ import annotations

import ast
import re
from math import prod
from typing import IO, NamedTuple

import numpy as np

from polyattn.quoting import shown

# How a .npy begins.
MAGIC = b"\x93NUMPY"

# Numbers and text: what is read, and what is refused by name.
_TYPE = re.compile(r"[<>|=]?(?:[biuf?][0-9]{0,2}|c(?:8|16|32)|[SU][0-9]{1,6})")
MOST_HEADER = 10_000


class Header(NamedTuple):
    """What a header says; ``n_bytes`` is its own length, after which the numbers begin."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    n_bytes: int


class Unreadable(Exception):
    """Why a file cannot be read."""


def read_header(file: IO[bytes], size: int) -> Header:
    """Shape and type of a .npy of so many bytes, which must all be accounted for.

    There are as many numbers as the header says, and no objects: what else may be wrong with it,
    numpy finds without harm.
    """
    begin = file.read(8)
    if len(begin) < 8 or not begin.startswith(MAGIC) or begin[6] not in (1, 2, 3):
        raise Unreadable("it does not begin as a .npy does")
    width = 2 if begin[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > MOST_HEADER:
        raise Unreadable(f"its header has {length} bytes")
    shape, dtype, fortran = _parsed(file.read(length))
    begins = 8 + width + length
    wanted, rest = prod(shape) * dtype.itemsize, size - begins
    if wanted != rest:
        raise Unreadable(f"its header describes {wanted} bytes of numbers, and there are {rest}")
    return Header(shape, dtype, fortran, begins)


def _parsed(text: bytes) -> tuple[tuple[int, ...], np.dtype, bool]:
    """The shape, the type and whether columns come first, in a header."""
    try:
        content = ast.literal_eval(text.decode().strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        content = None
    if not isinstance(content, dict) or set(content) != {"descr", "fortran_order", "shape"}:
        raise Unreadable("its header is no description of an array")
    kind, fortran, shape = content["descr"], content["fortran_order"], content["shape"]
    # As numpy has them: up to 32 axes, and no length that memory could not hold.
    is_shape = (
        isinstance(shape, tuple)
        and len(shape) <= 32
        and all(type(each) is int and 0 <= each < 2**60 for each in shape)
        and prod(each for each in shape if each) < 2**60
    )
    if not isinstance(kind, str) or not _TYPE.fullmatch(kind):
        raise Unreadable(f"its type is {shown(kind)}")
    if type(fortran) is not bool or not is_shape:
        raise Unreadable(f"its order is {shown(fortran)}, its shape {shown(shape)}")
    try:
        dtype = np.dtype(kind)
    except TypeError:
        raise Unreadable(f"its type is {shown(kind)}") from None
    if dtype.itemsize == 0 and prod(shape) > 0:
        raise Unreadable(f"its type is {shown(kind)}, of no bytes")
    return shape, dtype, fortran
