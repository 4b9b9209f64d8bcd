"""Small sources for tests: chunks in memory, and shards in files that are read when needed."""

import time
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from distributed.protocol import deserialize, serialize

from polyattn.errors import FileFormatError, InvalidInput
from polyattn.sequences import SequenceBatch
from polyattn.sources.source import Chunk, ChunkData, ChunkIdentity, Source


class MemoryChunk(Chunk):
    """Sequences in memory under a name."""

    def __init__(self, name, X, Y=None, weights=None, *, first=0, fingerprint="1", **more):
        self.identity = ChunkIdentity(name, fingerprint, first, first + len(X))
        self.X, self.Y, self.weights, self.more = X, Y, weights, more
        self.n_bytes = int(sum(np.asarray(x).nbytes for x in X))
        self.n_reads = 0

    def read(self, mode):
        self.n_reads += 1
        batch = SequenceBatch.from_sequences(list(self.X))
        targets = self.Y
        if targets is not None and mode != "last":
            targets = SequenceBatch.from_sequences(list(targets))
        return ChunkData(batch, targets, self.weights, **self.more)


class EmptyChunk(MemoryChunk):
    """A chunk in which no sequence begins."""

    def __init__(self, name, first):
        super().__init__(name, [np.ones((1, 1))], first=first)

    def read(self, mode):
        del mode
        self.n_reads += 1


@dataclass
class ListSource(Source):
    """A source that is a list of chunks."""

    parts: list
    n_dims: int
    n_outputs: int = 0
    n_context_dims: int | None = None

    @property
    def chunks(self):
        return self.parts


def memory_source(n_chunks, d=2, e=1, seed=0, sizes=(3, 7), names=None, scale=1.0):
    """Ragged Gaussian sequences in chunks of one source, in mode "last"."""
    rng = np.random.default_rng(seed)
    chunks, first = [], 0
    for at in range(n_chunks):
        count = int(rng.integers(*sizes))
        X = [scale * rng.standard_normal((int(rng.integers(1, 5)), d)) for _ in range(count)]
        Y = rng.standard_normal((count, e)) if e else None
        own = None if names is None else names(at, first, count)
        weights = rng.uniform(0.5, 2.0, count)
        chunks.append(MemoryChunk("memory", X, Y, weights, first=first, names=own))
        first += count
    return ListSource(chunks, d, e)


class FileChunk(Chunk):
    """A shard X, Y in one .npz file, known by its size and time."""

    def __init__(self, path, pause=0.0):
        self.path, self.pause = Path(path), pause
        self.identity = ChunkIdentity(str(self.path), _fingerprint(self.path), 0, 1)
        self.n_bytes = self.path.stat().st_size

    def read(self, mode):
        del mode
        time.sleep(self.pause)
        try:
            with np.load(self.path) as arrays:
                X, Y = arrays["X"], arrays["Y"]
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise FileFormatError(f"{str(self.path)!r} is no shard ({error}).") from error
        if _fingerprint(self.path) != self.identity.fingerprint:
            raise InvalidInput(f"{str(self.path)!r} has changed since it was looked at.")
        return ChunkData(SequenceBatch.from_array(X), Y)


def _fingerprint(path):
    known = path.stat()
    return f"{known.st_size} bytes at {known.st_mtime_ns}"


def file_source(folder, d=3, e=1, pause=0.0):
    """All shards in a folder, in the order of their names."""
    return ListSource([FileChunk(path, pause) for path in sorted(Path(folder).glob("*.npz"))], d, e)


def write_shards(folder, count, n_sequences=40, d=3, e=1, seed=0):
    """Shards of Gaussian sequences."""
    rng = np.random.default_rng(seed)
    for at in range(count):
        X = rng.standard_normal((n_sequences, 4, d))
        np.savez(Path(folder) / f"{at:04}.npz", X=X, Y=rng.standard_normal((n_sequences, e)))


def sent(thing):
    """A thing as it arrives in another process, and the bytes that were sent."""
    header, frames = serialize(thing)
    return deserialize(header, frames), sum(map(len, frames))
