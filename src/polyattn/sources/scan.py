"""scan: files, arrays, or anything that yields (X, Y), as a source of chunks."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeGuard

from numpy.typing import ArrayLike

from polyattn.errors import InvalidInput, InvalidType, require_integer
from polyattn.files.atomic import file_to_read
from polyattn.quoting import shown
from polyattn.sequences import SequenceBatch, Sequences, is_frame, is_indexed, refuse_frame
from polyattn.sources.arrays import ArraySource
from polyattn.sources.iterables import IterableSource
from polyattn.sources.source import Source
from polyattn.targets import Targets

# About so many bytes of arrays are read together; of tables, whose numbers are copied, fewer.
CHUNK_BYTES = 32 << 20

# Files that hold tables, whose columns are named.
TABLES = frozenset({".parquet", ".pq", ".arrow", ".feather", ".ipc", ".csv", ".tsv"})

# Where the function is that opens files with such a name: module and name.  It takes the paths
# and the bytes of a chunk; those of tables also the columns.
OPENERS: dict[str, tuple[str, str]] = {
    ".npz": ("polyattn.sources.shards", "open_shards"),
    ".npy": ("polyattn.sources.shards", "open_shards"),
    **dict.fromkeys(sorted(TABLES), ("polyattn.sources.open_tables", "open_tables")),
}

# What opens collections of Dask.
COLLECTIONS = ("polyattn.sources.open_collections", "open_collection")


def scan(
    data: str | os.PathLike[str] | Sequences | Iterable[Any],
    Y: Targets | None = None,
    sample_weight: ArrayLike | None = None,
    context: Sequences | None = None,
    *,
    sequence: str | None = None,
    order: str | None = None,
    tokens: str | Sequence[str] | None = None,
    targets: str | Sequence[str] | None = None,
    weight: str | None = None,
    chunk_bytes: int | None = None,
) -> Source:
    """Data in chunks, of whatever size: ``fit``, ``certify``, ``audit`` take it in place of X.

    Parameters
    ----------
    data : a path, a pattern such as "data/part-*.npz", or a list of them
        ``.npz`` (arrays X, Y, weights, lengths or offsets, context) and ``.npy`` (X alone); tables
        ``.parquet``, ``.arrow``, ``.feather``, ``.csv``, ``.tsv`` (pyarrow reads them), with one
        row per token, or per sequence in columns of lists.
        Files are taken in the order of their names.
        Or sequences in memory or mapped into it, with ``Y``, ``sample_weight`` and ``context`` as
        for ``fit``; or what yields pairs (X, Y) or triples (X, Y, weights): a list of tuples, an
        object with ``__iter__``, a function that returns an iterator, all gone through for each
        pass; or an iterator, which is used up, with its items kept in a temporary file.
        Or a dask array with ``Y`` and ``sample_weight`` of the same kind, a dask data frame with
        columns, or a list of delayed pairs (X, Y), in the chunks that they have.
    sequence, order, tokens, targets, weight : columns of tables
        ``sequence`` names the sequence of a token, whose rows stand together, ``order`` its place
        in it (None: as the rows stand), ``tokens`` its coordinates, ``targets`` the outputs wanted
        there (in mode "last" those of the last token count), ``weight`` that of the sequence.
        A sequence that goes on from file to file is one where these are scanned together.
        Refused for files of arrays, which name their own.
    chunk_bytes : int, optional
        About how many bytes are read together (32 MiB; of tables 16 MiB, those of a CSV as text).

    Guarantee: chunks and their order depend on the data alone.  A file that changes after it was
    listed is refused when it is read.
    Cost: headers are read, and where sequences begin; of what yields pairs, all of them once.
    """
    size = None if chunk_bytes is None else require_integer("chunk_bytes", chunk_bytes)
    columns = {
        "sequence": sequence, "order": order, "tokens": tokens, "targets": targets,
        "weight": weight,
    }  # fmt: skip
    beside = {"Y": Y, "sample_weight": sample_weight, "context": context}
    if isinstance(data, Source):
        raise InvalidType("this is a source already; give it to fit or certify as it is.")
    names = _as_names(data)
    if names is not None:
        _refuse(beside, "files hold them already")
        return _open(files_named(names), columns, size)
    if _is_collection(data):
        opener: Any = _found(COLLECTIONS)
        return opener(data, **beside, **columns, chunk_bytes=size)
    _refuse_frame(data, columns)
    _refuse(columns, "they name columns of tables, and these are arrays")
    if _are_sequences(data):
        return ArraySource(data, Y, sample_weight, context, size or CHUNK_BYTES)
    if not (callable(data) or isinstance(data, Iterable)):
        raise InvalidType(
            f"scan takes files, sequences, or what yields pairs (X, Y); got {shown(data)}."
        )
    _refuse(beside, "they come with each X of the iterable")
    return IterableSource(data)


def _is_collection(data: object) -> bool:
    """Whether Dask computes it: a collection, or a list of delayed objects or of pairs of them."""
    if isinstance(data, list | tuple) and data:
        return _is_collection(data[0])
    return hasattr(type(data), "__dask_graph__")


def _refuse_frame(data: object, columns: dict[str, Any]) -> None:
    """Refuse a table in memory, unless its index says what the sequences are."""
    if not is_frame(data):
        return
    if not is_indexed(data):
        refuse_frame(data, "data")
    _refuse(columns, "pa.from_long takes columns of a frame in memory by name")


def _as_names(data: object) -> list[str] | None:
    """Paths and patterns as texts; None where something else was given."""
    if isinstance(data, str | os.PathLike):
        data = [data]
    if not isinstance(data, list | tuple) or not data:
        return None
    if not all(isinstance(each, str | os.PathLike) for each in data):
        return None
    return [os.fspath(each) for each in data]


def _are_sequences(data: object) -> TypeGuard[Sequences]:
    """Whether it is X itself: an array, or a list that holds no pairs."""
    if isinstance(data, list | tuple):
        return not any(isinstance(each, tuple) for each in data)
    return isinstance(data, SequenceBatch) or hasattr(data, "__array__")


def files_named(names: list[str]) -> list[Path]:
    """The files that are meant, in the order of their names; none twice."""
    found: dict[tuple[int, int], Path] = {}
    paths: list[Path] = []
    for name in names:
        matching = [name]
        if glob.has_magic(name) and not Path(name).exists():
            matching = [each for each in glob.glob(name, recursive=True) if os.path.isfile(each)]
        if not matching:
            raise InvalidInput(f"no file matches {name!r}; look at the pattern and the folder.")
        paths += [file_to_read(each, "data") for each in matching]
    for path in sorted(each.resolve() for each in paths):
        state = path.stat()
        same = found.setdefault((state.st_dev, state.st_ino), path)
        if same is not path:
            other = "" if same == path else f" (also as {str(same)!r})"
            raise InvalidInput(
                f"{str(path)!r} is given twice{other}; its sequences would count twice."
            )
    return list(found.values())


def _open(paths: list[Path], columns: dict[str, Any], chunk_bytes: int | None) -> Source:
    """The source of files, which are all of one kind."""
    openers = {}
    for path in paths:
        suffix = path.suffix.lower()
        if suffix not in OPENERS:
            raise InvalidInput(f"files of sequences are {', '.join(OPENERS)}; got {str(path)!r}.")
        openers[OPENERS[suffix]] = path
    if len(openers) > 1:
        one, other, *_ = openers.values()
        raise InvalidInput(
            f"files of one kind are read together; got {str(one)!r} and {str(other)!r}."
        )
    opener: Any = _found(next(iter(openers)))
    if paths[0].suffix.lower() in TABLES:
        sized = {} if chunk_bytes is None else {"chunk_bytes": chunk_bytes}
        return opener(paths, **columns, **sized)
    _refuse(columns, "they name columns of tables, and files of arrays name their own")
    return opener(paths, chunk_bytes or CHUNK_BYTES)


def _found(place: tuple[str, str]) -> Any:
    module, name = place
    return getattr(import_module(module), name)


def _refuse(given: dict[str, Any], why: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(f"leave out {name}: {why}.")
