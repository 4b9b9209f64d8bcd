"""Sequences in memory, or mapped into it, as a source: cut into chunks that are views."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput
from polyattn.numerics.arrays import pieces, ranges_of_rows, real_array
from polyattn.numerics.tensors import without_tensors
from polyattn.sequences import SequenceBatch, Sequences, as_batch, require_aligned
from polyattn.sources.source import Chunk, ChunkData, ChunkIdentity, Source, TokenLabels
from polyattn.targets import Targets, as_targets, as_weights


@dataclass(frozen=True, eq=False)
class ArrayChunk(Chunk):
    """Some sequences in memory."""

    content: ChunkData = field(repr=False)
    first: int
    n_bytes: int

    @cached_property
    def identity(self) -> ChunkIdentity:  # type: ignore[override]
        """By content: the same numbers are the same chunk, wherever they stand."""
        content = self.content
        digest = hashlib.sha256()
        for part in (content.batch, content.targets, content.context):
            if isinstance(part, SequenceBatch | TokenLabels):
                _digest(digest, part.offsets)
                part = part.values
            _digest(digest, part)
        _digest(digest, content.weights)
        stop = self.first + len(content.batch)
        return ChunkIdentity(f"arrays {digest.hexdigest()[:32]}", "in memory", self.first, stop)

    def read(self, mode: str) -> ChunkData:
        if self.content.targets is not None:
            as_targets(self.content.targets, self.content.batch, mode)
        return self.content

    def read_inputs(self) -> ChunkData:
        content = self.content
        return ChunkData(content.batch, None, content.weights, content.context, content.names)


class ArraySource(Source):
    """Sequences, targets, weights and context that are at hand, as ``fit`` takes them."""

    def __init__(
        self,
        X: Sequences,
        Y: Targets | None,
        sample_weight: ArrayLike | None,
        context: Sequences | None,
        chunk_bytes: int,
    ) -> None:
        require_aligned(X, Y)
        batch = as_batch(X, keep_integers=True)
        attended = None if context is None else as_batch(context, "context", keep_integers=True)
        if attended is not None and len(attended) != len(batch):
            raise InvalidInput(
                f"X has {len(batch)} sequences but context has {len(attended)}; each sequence of "
                "X attends to one of context."
            )
        targets = _Targets.of(Y, batch)
        weights = as_weights(sample_weight, batch)
        n_bytes = batch.values.nbytes + (0 if attended is None else attended.values.nbytes)
        share = max(1, int(chunk_bytes * len(batch.values) / (n_bytes + targets.n_bytes)))
        self._chunks = [
            ArrayChunk(
                ChunkData(
                    batch.part(first, stop),
                    targets.part(first, stop),
                    None if weights is None else weights[first:stop],
                    None if attended is None else attended.part(first, stop),
                ),
                first,
                (n_bytes + targets.n_bytes) * (stop - first) // len(batch),
            )
            for first, stop in ranges_of_rows(batch.offsets, share)
        ]
        self._targets = targets
        self.n_dims, self.n_outputs = batch.n_dims, targets.n_outputs("last")
        self.n_context_dims = None if attended is None else attended.n_dims
        self.coordinate_names = batch.coordinate_names

    @property
    def chunks(self) -> Sequence[ArrayChunk]:
        return self._chunks

    def n_outputs_in(self, mode: str) -> int:
        return self._targets.n_outputs(mode)


@dataclass(frozen=True, eq=False)
class _Targets:
    """Targets of any form, of which those of some sequences can be taken."""

    given: Any

    @classmethod
    def of(cls, Y: Targets | None, batch: SequenceBatch) -> _Targets:
        given: Any = without_tensors(Y, "Y")
        if not (given is None or isinstance(given, SequenceBatch | np.ndarray)):
            try:
                given = np.asarray(given)
            except ValueError:  # as many targets for each sequence as it has tokens
                each = [real_array(item, f"Y[{i}]") for i, item in enumerate(given)]
                each = [item[:, None] if item.ndim == 1 else item for item in each]
                given = SequenceBatch.from_sequences(each, "Y")
        if isinstance(given, np.ndarray) and given.dtype.hasobject:
            given = real_array(given, "Y")
        single = isinstance(given, np.ndarray) and given.ndim == 0
        if single or (given is not None and len(given) != len(batch)):
            count = "one number" if single else f"{len(given)} targets"
            raise InvalidInput(f"X has {len(batch)} sequences but Y has {count}.")
        return cls(given)

    def part(self, first: int, stop: int) -> Any:
        if isinstance(self.given, SequenceBatch):
            return self.given.part(first, stop)
        return None if self.given is None else self.given[first:stop]

    def n_outputs(self, mode: str) -> int:
        given = self.given
        if given is None:
            return 0
        if isinstance(given, SequenceBatch):
            return given.n_dims
        return int(given.shape[-1]) if given.ndim > 1 + (mode != "last") else 1

    @property
    def n_bytes(self) -> int:
        array = self.given.values if isinstance(self.given, SequenceBatch) else self.given
        return 0 if array is None else array.nbytes


def _digest(digest: Any, array: NDArray | None) -> None:
    """Add an array, with its shape and type."""
    if array is None:
        digest.update(b"nothing")
        return
    digest.update(f"{array.dtype.str} {array.shape} ".encode())
    for piece in pieces(array):
        digest.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
