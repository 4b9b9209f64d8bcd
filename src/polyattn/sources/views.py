"""Views of a source: the same chunks, with less or other content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from polyattn.sequences import SequenceBatch
from polyattn.sources.source import Chunk, ChunkData, ChunkIdentity, Source

# What is said of chunks whose targets were changed.
OTHER_TARGETS = "other targets"


class SourceView(Source):
    """Another source as it is, but for what is changed in each chunk."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.n_dims, self.n_outputs = source.n_dims, source.n_outputs
        self.n_context_dims = source.n_context_dims
        self.coordinate_names = source.coordinate_names

    def labelled(self) -> SourceView:
        made = copy(self)
        made.source = self.source.labelled()
        return made

    def with_missing(self) -> SourceView:
        made = copy(self)
        made.source = self.source.with_missing()
        return made


class Inputs(SourceView):
    """The sequences and their contexts alone, without targets; without weights if so wished."""

    def __init__(self, source: Source, weighted: bool = False) -> None:
        super().__init__(source)
        self.weighted, self.n_outputs = weighted, 0

    @property
    def chunks(self) -> Sequence[Chunk]:
        return [
            _InputsChunk(chunk, chunk.identity, chunk.n_bytes, self.weighted)
            for chunk in self.source.chunks
        ]


class OtherTargets(SourceView):
    """The same sequences with other targets, each a function of those that the source has.

    Sums of them are other sums than those of the source: their chunks have identities of their own.
    change : from the targets of a chunk to others, of ``n_outputs`` coordinates
    """

    def __init__(self, source: Source, change: Callable[[Any], Any], n_outputs: int) -> None:
        super().__init__(source)
        self.change, self.n_outputs = change, n_outputs

    @property
    def chunks(self) -> Sequence[Chunk]:
        return [
            _ChangedChunk(
                chunk, _named(chunk.identity, "other targets"), chunk.n_bytes, self.change
            )
            for chunk in self.source.chunks
        ]


class OtherTokens(SourceView):
    """The same sequences with other tokens, as many and each sequence by itself.

    change : from the sequences of a chunk to others, of ``n_dims`` coordinates
    name : what was done, in words that tell it from all else: sums of other tokens are other sums
    """

    def __init__(
        self,
        source: Source,
        change: Callable[[SequenceBatch], SequenceBatch],
        n_dims: int,
        name: str,
    ) -> None:
        super().__init__(source)
        self.change, self.n_dims, self.name = change, n_dims, name

    def n_outputs_in(self, mode: str) -> int:
        return self.source.n_outputs_in(mode)

    @property
    def chunks(self) -> Sequence[Chunk]:
        return [
            _ChangedTokens(chunk, _named(chunk.identity, self.name), chunk.n_bytes, self.change)
            for chunk in self.source.chunks
        ]


@dataclass(frozen=True, eq=False)
class _InputsChunk(Chunk):
    chunk: Chunk
    identity: ChunkIdentity
    n_bytes: int
    weighted: bool

    def read(self, mode: str) -> ChunkData | None:  # noqa: ARG002 - there are no targets
        return self.read_inputs()

    def read_inputs(self) -> ChunkData | None:
        content = self.chunk.read_inputs()
        if content is None or self.weighted:
            return content
        return replace(content, weights=None)


@dataclass(frozen=True, eq=False)
class _ChangedChunk(Chunk):
    chunk: Chunk
    identity: ChunkIdentity
    n_bytes: int
    change: Callable[[Any], Any]

    def read(self, mode: str) -> ChunkData | None:
        content = self.chunk.read(mode)
        return None if content is None else replace(content, targets=self.change(content.targets))

    def read_inputs(self) -> ChunkData | None:
        return self.chunk.read_inputs()


@dataclass(frozen=True, eq=False)
class _ChangedTokens(Chunk):
    chunk: Chunk
    identity: ChunkIdentity
    n_bytes: int
    change: Callable[[SequenceBatch], SequenceBatch]

    def read(self, mode: str) -> ChunkData | None:
        return self._changed(self.chunk.read(mode))

    def read_inputs(self) -> ChunkData | None:
        return self._changed(self.chunk.read_inputs())

    def _changed(self, content: ChunkData | None) -> ChunkData | None:
        return None if content is None else replace(content, batch=self.change(content.batch))


def _named(identity: ChunkIdentity, name: str) -> ChunkIdentity:
    return identity._replace(fingerprint=f"{identity.fingerprint}, {name}")
