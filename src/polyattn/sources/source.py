"""What a source is: a list of chunks, each of which can be read by itself and is known by name.

The list is made without reading the data, and is the same whoever makes it: the order of chunks
decides how sums over them are rounded, and their identities that none is counted twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.quoting import counted, readable_bytes
from polyattn.sequences import SequenceBatch


class ChunkIdentity(NamedTuple):
    """Which part of what a chunk is: entries first..stop of the source, as they are now.

    source : what it is a part of, such as the full path of a file
    fingerprint : changes when the content does: size and time of a file, a digest of an array
    first, stop : where the part begins and ends, in units of the source: sequences, rows, bytes
    """

    source: str
    fingerprint: str
    first: int
    stop: int


class TokenLabels(NamedTuple):
    """Labels that are text, one for each token: ``values`` (n_tokens_total,), and the offsets."""

    values: NDArray
    offsets: NDArray


@dataclass(frozen=True, eq=False)
class ChunkData:
    """The content of a chunk, with what belongs to each of its sequences.

    targets : as ``as_targets`` takes them in the mode that was asked for; None without any; of a
        source of labels also texts (n_sequences,), or ``TokenLabels``
    weights : one per sequence, or None
    context : the sequences that those of ``batch`` attend to, or None
    names : what the source calls each sequence (n_sequences,), or None
    order : of a table, what stands in its column ``order`` for each token (n_tokens_total,)
    """

    batch: SequenceBatch
    targets: NDArray | SequenceBatch | TokenLabels | None = None
    weights: NDArray | None = None
    context: SequenceBatch | None = None
    names: NDArray | None = None
    order: Any = None


class Chunk(ABC):
    """Some sequences of a source, read when they are needed.

    Chunks are sent to other processes: they hold references to files, and arrays only where there
    is nothing else.
    """

    identity: ChunkIdentity
    n_bytes: int  # to be read, about; for progress and plans

    @abstractmethod
    def read(self, mode: str) -> ChunkData | None:
        """The content; targets as ``mode`` wants them: one per sequence ("last") or per token.

        None where no sequence begins in it: a long one from before may fill a range of a table.

        Raises an error that names the file, where it is not what ``identity`` says any more.
        """

    def read_inputs(self) -> ChunkData | None:
        """The content without targets, for whatever mode."""
        content = self.read("last")
        return None if content is None else replace(content, targets=None)


class Source(ABC):
    """Sequences, and what belongs to them, in chunks.

    n_dims : coordinates per token
    n_outputs : target coordinates; 0 without targets
    n_context_dims : coordinates per token of the context; None without one
    coordinate_names : what coordinates are called, as the columns of a table; None: not known
    """

    n_dims: int
    n_outputs: int
    n_context_dims: int | None
    coordinate_names: tuple[str, ...] | None = None

    @property
    @abstractmethod
    def chunks(self) -> Sequence[Chunk]:
        """All chunks in their order, which never changes."""

    def n_outputs_in(self, mode: str) -> int:  # noqa: ARG002 - for those that override it
        """Target coordinates in this mode: an array (N, n) holds n, or one for each token."""
        return self.n_outputs

    def labelled(self) -> Source:
        """The same source, whose targets are labels of classes: texts, where it holds texts."""
        return self

    def with_missing(self) -> Source:
        """The same source, whose tokens may hold missing values: NaN, which are to be filled."""
        raise InvalidInput(
            f"missing values are read from files of tables and arrays, not from a "
            f"{type(self).__name__}; give X as a list of arrays to polyattn.SequenceImputer."
        )

    @property
    def n_bytes(self) -> int:
        """Bytes to be read in one pass, about."""
        return sum(chunk.n_bytes for chunk in self.chunks)

    def __repr__(self) -> str:
        coordinates, outputs = counted(self.n_dims, "coordinate"), counted(self.n_outputs, "output")
        size = f"{counted(len(self.chunks), 'chunk')} of {readable_bytes(self.n_bytes)} in all"
        return f"{type(self).__name__}({size}, tokens of {coordinates}, {outputs})"


def require_alone(**beside: object) -> None:
    """Refuse what a source holds already, by its name."""
    for name, value in beside.items():
        if value is not None:
            raise InvalidInput(
                f"the source holds targets, weights and context: leave out {name}, or give them "
                "when the source is made."
            )


def require_no_checkpoint(checkpoint: object, client: object = None) -> None:
    """Refuse a checkpoint or a client beside data that are not read from a source."""
    if checkpoint is not None:
        raise InvalidInput(
            "a checkpoint keeps sums over the chunks of a source; make one of the data with "
            "polyattn.scan(...), or leave checkpoint out."
        )
    if client is not None:
        raise InvalidInput(
            "the workers of a client read the chunks of a source; make one of the data with "
            "polyattn.scan(...), or leave client out."
        )
