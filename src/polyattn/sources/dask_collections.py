"""Dask's arrays, data frames and delayed parts as sources.

A chunk names the part that it needs as a delayed object (``part``), of which only its own tasks
are sent to a worker.  ``read`` computes it in this process; a cluster computes it where it likes
and hands the value to ``read_from``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from polyattn.errors import InvalidInput, InvalidType, missing_extra
from polyattn.quoting import shown
from polyattn.sequences import SequenceBatch, as_batch
from polyattn.sources.source import Chunk, ChunkData, ChunkIdentity, Source


class DaskChunk(Chunk):
    """Some sequences that Dask computes.

    part : the delayed object whose value ``read_from`` takes
    """

    part: Any

    def read(self, mode: str) -> ChunkData | None:
        return self.read_from(self.part.compute(scheduler="synchronous"), mode)

    @abstractmethod
    def read_from(self, value: Any, mode: str) -> ChunkData | None:
        """The content of the chunk, from the value of its part."""


@dataclass(frozen=True, eq=False)
class PairChunk(DaskChunk):
    """A chunk whose part is (X, Y, weights), as ``fit`` takes them; Y and weights may be None."""

    identity: ChunkIdentity
    n_bytes: int
    part: Any
    n_dims: int
    n_outputs: int

    def read_from(self, value: Any, mode: str) -> ChunkData:
        X, Y, weights = value
        place = f"the part {self.identity.first}..{self.identity.stop} of {self.identity.source}"
        batch = as_batch(X, f"X in {place}", self.n_dims, keep_integers=True)
        n_outputs = _n_outputs(Y, place)
        if n_outputs != self.n_outputs:
            raise InvalidInput(
                f"all parts need the same number of outputs: the first has {self.n_outputs}, "
                f"{place} has {n_outputs}."
            )
        if n_outputs and mode != "last" and not _per_token(Y):
            raise InvalidInput(
                f"mode {mode!r} needs one target per token: give Y of shape (n_sequences, "
                f"n_tokens, n_outputs), or a list of arrays (n_tokens, n_outputs), in {place}."
            )
        return ChunkData(batch, Y, weights)


class DaskSource(Source):
    """Chunks that Dask computes, as ``array_source`` and the others list them."""

    def __init__(
        self,
        chunks: Sequence[DaskChunk],
        n_dims: int,
        n_outputs: int,
        coordinate_names: tuple[str, ...] | None = None,
    ) -> None:
        self._chunks = tuple(chunks)
        self.coordinate_names = coordinate_names
        self.n_dims, self.n_outputs = n_dims, n_outputs
        self.n_context_dims = None

    @property
    def chunks(self) -> Sequence[DaskChunk]:
        return self._chunks


def array_source(X: Any, Y: Any = None, sample_weight: Any = None) -> DaskSource:
    """A ``dask.array`` of sequences with one of targets, chunk by chunk along the first axis.

    X : (n_sequences, n_tokens, n_dims); chunks along other axes are joined
    Y : (n_sequences,), (n_sequences, n_outputs), or per token (n_sequences, n_tokens, n_outputs);
        divided as X is
    sample_weight : (n_sequences,), divided as X is
    """
    dask = require_dask()
    import dask.array as arrays

    given = [each for each in (X, Y, sample_weight) if each is not None]
    for each in given:
        if not isinstance(each, arrays.Array):
            raise InvalidType(f"X, Y and sample_weight must be dask arrays; got {shown(each)}.")
        if any(np.isnan(size) for size in each.shape) or len(each) != len(X):
            raise InvalidInput(
                f"X, Y and sample_weight need one known number of sequences; got shapes "
                f"{', '.join(str(each.shape) for each in given)}. Unknown sizes are found by "
                "compute_chunk_sizes()."
            )
    if X.ndim != 3 or 0 in X.shape:
        raise InvalidInput(
            f"X must have shape (n_sequences, n_tokens, n_dims), none of them 0; got {X.shape}."
        )
    if Y is not None and not 1 <= Y.ndim <= 3:
        raise InvalidInput(f"Y must have one to three axes; got shape {Y.shape}.")
    n_outputs = 0 if Y is None else 1 if Y.ndim == 1 else Y.shape[-1]
    sizes = tuple(size for size in X.chunks[0] if size)
    divided = [
        None if each is None else each.rechunk((sizes, *((size,) for size in each.shape[1:])))
        for each in (X, Y, sample_weight)
    ]
    # Of the arrays as they were given: other chunks of the same numbers overlap with these.
    name = f"dask array {X.name}"
    fingerprint = dask.base.tokenize(*(each.name for each in given))
    chunks = []
    for i, (first, stop) in enumerate(pairwise(accumulate(sizes, initial=0))):
        blocks = [None if each is None else _block(each, i) for each in divided]
        n_bytes = sum(each.nbytes // len(each) for each in given) * (stop - first)
        identity = ChunkIdentity(name, fingerprint, first, stop)
        part = dask.delayed(tuple)(blocks)
        chunks.append(PairChunk(identity, n_bytes, part, X.shape[2], n_outputs))
    return DaskSource(chunks, X.shape[2], n_outputs)


def delayed_source(parts: Sequence[Any]) -> DaskSource:
    """Delayed pairs (X, Y), each as ``fit`` takes them; Y is None without targets.

    A part is one delayed object with such a value, or a pair of delayed objects.  The first is
    computed at once, to know the numbers of coordinates and outputs.  A part is known by the key
    of its delayed object: functions that are not ``pure`` get a new one in each call.
    """
    dask = require_dask()
    if not isinstance(parts, Sequence) or isinstance(parts, str) or not parts:
        raise InvalidType(f"parts must be a list of delayed pairs (X, Y); got {shown(parts)}.")
    pairs = [_pair(dask, part, i) for i, part in enumerate(parts)]
    X, Y, _ = pairs[0].compute(scheduler="synchronous")
    batch = as_batch(X, keep_integers=True)
    n_outputs = _n_outputs(Y, "part 0")
    n_bytes = batch.values.nbytes + (0 if Y is None else 8 * len(batch) * n_outputs)
    chunks = [
        PairChunk(_delayed_identity(part), n_bytes, pair, batch.n_dims, n_outputs)
        for part, pair in zip(parts, pairs, strict=True)
    ]
    if len({chunk.identity for chunk in chunks}) < len(chunks):
        raise InvalidInput("parts holds a delayed object twice; give each once.")
    return DaskSource(chunks, batch.n_dims, n_outputs, batch.coordinate_names)


def is_delayed(value: object) -> bool:
    """Whether it is a delayed object, which claims to have every attribute."""
    require_dask()
    from dask.delayed import Delayed

    return isinstance(value, Delayed)


def require_dask() -> Any:
    """The package dask, or the command that installs it."""
    try:
        import dask
        import dask.base
    except ImportError:
        raise missing_extra("dask", "dask") from None
    return dask


def _block(array: Any, i: int) -> Any:
    """Block i along the first axis as one delayed array, with its own tasks alone."""
    return array.blocks[i].to_delayed().ravel()[0]


def _pair(dask: Any, part: Any, i: int) -> Any:
    """A delayed triple (X, Y, no weights)."""
    if isinstance(part, tuple | list) and len(part) == 2:
        return dask.delayed(tuple)([*part, None])
    if not dask.base.is_dask_collection(part):
        raise InvalidType(
            f"parts[{i}] must be a delayed pair (X, Y), or two delayed objects; got {shown(part)}."
        )
    return dask.delayed(_with_no_weights)(part, i)


def _with_no_weights(pair: Any, i: int) -> tuple[Any, Any, None]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidType(f"parts[{i}] must have a pair (X, Y) as its value; got {shown(pair)}.")
    return pair[0], pair[1], None


def _delayed_identity(part: Any) -> ChunkIdentity:
    several = part if isinstance(part, tuple | list) else [part]
    keys = [str(getattr(each, "key", each)) for each in several]
    return ChunkIdentity(f"delayed {', '.join(keys)}", ":".join(keys), 0, 1)


def _n_outputs(Y: Any, place: str) -> int:
    """How many outputs targets have: the last axis counts them, unless it is the only one."""
    if Y is None:
        return 0
    if isinstance(Y, SequenceBatch):
        return Y.n_dims
    shape = np.shape(Y[0]) if isinstance(Y, list | tuple) and len(Y) else np.shape(Y)[1:]
    if len(shape) > 2:
        raise InvalidInput(f"Y must have at most three axes in {place}; got {shown(Y)}.")
    return int(shape[-1]) if shape else 1


def _per_token(Y: Any) -> bool:
    if isinstance(Y, SequenceBatch):
        return True
    return len(np.shape(Y[0])) == 2
