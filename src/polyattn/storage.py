"""save and load: one call each for everything that can be kept in a file."""

from __future__ import annotations

import os
from typing import Any

from polyattn.errors import FileFormatError, InvalidType
from polyattn.files import read_record, rebuild, write_record
from polyattn.model import LinearAttention
from polyattn.result import FitResult
from polyattn.stats import Moments, TriangularFactor

KINDS: dict[str, Any] = {
    "linear_attention": LinearAttention,
    "moments": Moments,
    "triangular_factor": TriangularFactor,
    "fit_result": FitResult,
}


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write a layer, statistics or a fit result to one file (safetensors), atomically.

    A result takes its statistics along, so it can be continued after loading.
    """
    if type(obj) not in KINDS.values():
        names = ", ".join(kind.__name__ for kind in KINDS.values())
        raise InvalidType(f"save takes one of {names}; got {type(obj).__name__}.")
    write_record(obj.to_record(), path)


def load(path: str | os.PathLike[str]) -> Any:
    """Read what ``save`` wrote: the same kind of object, checked against its digest."""
    record = read_record(path)
    if record.kind not in KINDS:
        raise FileFormatError(
            f"{str(path)!r} holds a {record.kind!r}, which this release does not know."
        )
    return rebuild(KINDS[record.kind], record, path)
