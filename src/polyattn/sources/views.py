"""Views of a source: the same chunks, with less or other content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from polyattn.sources.source import Chunk, ChunkData, ChunkIdentity, Source


class SourceView(Source):
    """Another source as it is, but for what is changed in each chunk."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.n_dims, self.n_outputs = source.n_dims, source.n_outputs
        self.n_context_dims = source.n_context_dims


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
            _ChangedChunk(chunk, _with_other_targets(chunk.identity), chunk.n_bytes, self.change)
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


def _with_other_targets(identity: ChunkIdentity) -> ChunkIdentity:
    return identity._replace(fingerprint=f"{identity.fingerprint}, other targets")
