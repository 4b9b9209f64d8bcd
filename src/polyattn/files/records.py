"""One file format for everything: safetensors, with a JSON description in its metadata.

A file holds named float64 or integer arrays and one JSON object.  A digest over both is kept
beside them, so a truncated, edited or foreign file is refused.  Nothing in a file is executed.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import FileFormatError, InvalidInput, InvalidType, OutOfRange
from polyattn.files.atomic import file_to_read, refuse_other_format, write_atomically
from polyattn.files.fields import any_object, entries, text
from polyattn.files.strict_json import parse_json
from polyattn.quoting import shown

FORMAT = "polyattn"
FORMAT_VERSION = 1

# The types of safetensors that records hold.
TYPES = ("F64", "I64")

DESCRIPTION = entries({"kind": text(100), "metadata": any_object})


@dataclass(frozen=True)
class Record:
    """What a file holds: a kind, named arrays, and plain metadata (JSON types only)."""

    kind: str
    arrays: dict[str, NDArray]
    metadata: dict[str, Any] = field(default_factory=dict)


def write_record(record: Record, path: str | os.PathLike[str]) -> None:
    """Write atomically: the file appears complete, or not at all."""
    refuse_other_format(path, ".safetensors")
    from safetensors import SafetensorError
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in record.arrays.items()}
    description = _described(record)
    header = {
        "format": FORMAT,
        "version": str(FORMAT_VERSION),
        "description": description,
        "digest": _digest(arrays, str(FORMAT_VERSION), description),
    }
    try:
        content = save(arrays, metadata=header)
    except SafetensorError as error:
        raise InvalidInput(
            f"this {record.kind!r} cannot be kept in a file ({error}): its description has "
            f"{len(description):,} characters. The matrices of a form stand in it; apply large "
            "ones to the tokens before."
        ) from None
    write_atomically(path, lambda file: file.write(content))


def read_record(path: str | os.PathLike[str], kind: str | None = None) -> Record:
    """Read and check a file; ``kind`` is what must be in it, if that is known."""
    from safetensors import SafetensorError, safe_open

    source = file_to_read(path)
    try:
        with safe_open(source, framework="numpy") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise FileFormatError(
                    f"{str(source)!r} is a safetensors file, but not one that polyattn wrote."
                )
            version = header.get("version", "")
            if version not in [str(number) for number in range(1, FORMAT_VERSION + 1)]:
                raise FileFormatError(
                    f"{str(source)!r} has format version {version!r}; this release reads versions "
                    f"up to {FORMAT_VERSION}. Upgrade polyattn to read it."
                )
            arrays = {name: _array(file, name, source) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise FileFormatError(
            f"{str(source)!r} is not a polyattn file, or it is truncated ({error})."
        ) from None
    description = header.get("description", "")
    if header.get("digest") != _digest(arrays, version, description):
        raise FileFormatError(
            f"{str(source)!r} is damaged or was changed after it was written: its digest does "
            "not match its content. Write it again from the source."
        )
    try:
        content = parse_json(description)
        DESCRIPTION(content, "the description")
    except (InvalidInput, FileFormatError) as error:
        raise FileFormatError(f"{str(source)!r}: {error}") from None
    if kind is not None and content["kind"] != kind:
        raise FileFormatError(f"{str(source)!r} holds a {content['kind']!r}, not a {kind!r}.")
    return Record(content["kind"], arrays, content["metadata"])


def rebuild(kind: Any, record: Record, path: str | os.PathLike[str]) -> Any:
    """``kind.from_record(record)``, where an incomplete or forged record is a file's fault."""
    try:
        return kind.from_record(record)
    except (FileFormatError, InvalidInput, InvalidType, OutOfRange) as error:
        raise FileFormatError(
            f"{str(path)!r} does not hold a complete {record.kind!r}: {error}"
        ) from error


def record_digest(record: Record) -> str:
    """A text that two records share only if they hold the same, bit for bit."""
    return _digest(record.arrays, str(FORMAT_VERSION), _described(record))


def _described(record: Record) -> str:
    content = {"kind": record.kind, "metadata": record.metadata}
    return json.dumps(content, sort_keys=True, allow_nan=False)


def _array(file: Any, name: str, source: Path) -> NDArray:
    """One array of a safetensors file, if it is of a type that records have."""
    kind = file.get_slice(name).get_dtype()
    if kind not in TYPES:
        raise FileFormatError(
            f"{str(source)!r} holds an array {shown(name)} of type {kind}; polyattn writes "
            f"{' and '.join(TYPES)}."
        )
    return np.asarray(file.get_tensor(name))


def _digest(arrays: dict[str, NDArray], version: str, description: str) -> str:
    digest = hashlib.sha256(f"{version}:{description}".encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}:{array.dtype.str}:{array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
