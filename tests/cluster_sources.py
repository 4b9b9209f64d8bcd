"""Sources for tests of clusters, whose chunks do on a worker what tests want to happen there."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from polyattn.cluster.sending import LINK_BYTES
from polyattn.sequences import SequenceBatch
from polyattn.sources import Chunk, ChunkData, ChunkIdentity, Source


@dataclass(frozen=True, eq=False)
class FileChunk(Chunk):
    """An .npz file with X, Y and weights; ``before`` is called with its path before it is read."""

    path: str
    n_bytes: int
    before: Callable[[str], None] | None = None
    with_weights: bool = True

    @property
    def identity(self):
        return ChunkIdentity(self.path, "", 0, 1)

    def read(self, mode):
        if self.before is not None:
            self.before(self.path)
        with np.load(self.path) as held:
            X, Y, weights = held["X"], held["Y"], held["weights"]
        if np.isnan(X).any():
            from polyattn.errors import InvalidInput

            raise InvalidInput(f"{self.path} holds NaN.")
        Y = Y[:, -1] if mode == "last" else Y
        return ChunkData(SequenceBatch.from_array(X), Y, weights if self.with_weights else None)


@dataclass(frozen=True, eq=False)
class MemoryChunk(Chunk):
    """Arrays."""

    X: np.ndarray
    Y: np.ndarray
    number: int

    @property
    def identity(self):
        return ChunkIdentity("memory", "", self.number, self.number + 1)

    @property
    def n_bytes(self):
        return self.X.nbytes

    def read(self, mode):
        Y = self.Y[:, -1] if mode == "last" else self.Y
        return ChunkData(SequenceBatch.from_array(self.X), Y)


@dataclass(frozen=True, eq=False)
class NamedChunk(MemoryChunk):
    """Arrays of sequences with names."""

    names: np.ndarray

    def read(self, mode):
        return replace(super().read(mode), names=self.names)


@dataclass(frozen=True, eq=False)
class ComputedChunk(Chunk):
    """A part of a Dask collection."""

    part: Any
    number: int
    n_bytes: int = 100

    @property
    def identity(self):
        return ChunkIdentity("collection", "", self.number, self.number + 1)

    def read(self, mode):
        return self.read_from(self.part.compute(scheduler="synchronous"), mode)

    def read_from(self, value, mode):
        X, Y = value
        return ChunkData(SequenceBatch.from_array(X), Y[:, -1] if mode == "last" else Y)


class Chunks(Source):
    """A source of given chunks."""

    n_context_dims = None

    def __init__(self, chunks, n_dims=3, n_outputs=2):
        self._chunks, self.n_dims, self.n_outputs = chunks, n_dims, n_outputs

    @property
    def chunks(self):
        return self._chunks


def arrays(i, n_sequences=12, n_tokens=4, d=3, e=2):
    """X, Y and weights of chunk i: of other sizes in each, so that units change on the way."""
    rng = np.random.default_rng(i)
    X = rng.standard_normal((n_sequences, n_tokens, d)) * 10.0 ** rng.integers(-3, 3)
    return X, rng.standard_normal((n_sequences, n_tokens, e)), rng.uniform(0.5, 2, n_sequences)


def write_files(folder: Path, n_chunks, **sizes):
    """So many files; the folder."""
    for i in range(n_chunks):
        X, Y, weights = arrays(i, **sizes)
        np.savez(folder / f"{i:03}.npz", X=X, Y=Y, weights=weights)
    return folder


def files_source(folder: Path, n_chunks, before=None, with_weights=True):
    """The first files as a source; of their pretended size, a task adds two of them."""
    paths = [str(folder / f"{i:03}.npz") for i in range(n_chunks)]
    return Chunks([FileChunk(path, LINK_BYTES // 2, before, with_weights) for path in paths])


@dataclass(frozen=True)
class KillOnce:
    """Kills the process that reads one of these files, the first time that one does."""

    names: tuple[str, ...]
    markers: Path

    def __call__(self, path):
        marker = self.markers / Path(path).name
        if marker.name in self.names and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class OnWorkers:
    """Refuses to read in the process of the client."""

    pid: int

    def __call__(self, path):
        if os.getpid() == self.pid:
            raise AssertionError(f"{path} is read by the client")


def late_first(rows, values, there):
    """A value for each part, and when it was there: that of the first part after some other."""
    if rows.base:
        there.touch()
    until = time.monotonic() + 30.0
    while not there.exists() and time.monotonic() < until:
        time.sleep(0.01)
    return values[rows.base], time.monotonic()


def divide_by_zero(rows):
    return rows.n_rows / 0


def wait_a_little(_path):
    time.sleep(0.02)


def kill_whoever(_path):
    """Kills every worker that reads it."""
    os.kill(os.getpid(), signal.SIGKILL)


def collect(result, chunks):
    """The paths of chunks, as a list that more are added to."""
    return result + [chunk.path for chunk in chunks]


def pretend(said):
    """Let this process say something else of its software; None: the truth again."""
    from polyattn.cluster import workers

    own = workers.__dict__.setdefault("_own_software", workers.software)
    workers.software = own if said is None else lambda: said


def begin_collecting(chunks):
    return collect([], chunks)
