"""What linear and softmax layers share: heads, checks, records, and forward passes in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.display import Described, Description, Reported, head_matrices, sizes_in_words
from polyattn.errors import InvalidInput, OutOfRange, require_choice, require_flag
from polyattn.features.summaries import Tokens
from polyattn.files.fields import array, entries, flag, one_of
from polyattn.files.records import Record
from polyattn.numerics import scaling
from polyattn.numerics.arrays import pieces, real_array, require_finite
from polyattn.progress import report
from polyattn.quoting import counted
from polyattn.sequences import MODES, SequenceBatch, Sequences, as_batch

# What files hold of a layer; that the arrays agree is checked where a layer is made.
ARRAYS = entries({"attn": array((None, None, None)), "value": array((None, None, None))})
FIELDS = entries({"mode": one_of(MODES), "bias": flag})

# Tokens that are processed together.
BLOCK_TOKENS = 1 << 14

# Products that are fewer powers of two apart do not underflow.
MOST_SPREAD = 900


@dataclass(frozen=True, eq=False, repr=False)
class AttentionLayer(Reported, Described):
    """Heads attn (H, d, d) and value (H, d, e), and the positions that ``mode`` predicts."""

    attn: NDArray[np.float64]
    value: NDArray[np.float64]
    mode: str
    bias: bool = False

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        attn = _matrices(self.attn, "attn")
        value = _matrices(self.value, "value")
        if attn.shape[1] != attn.shape[2]:
            raise InvalidInput(f"attn must have shape (H, d, d); got {attn.shape}.")
        if attn.shape[:2] != value.shape[:2]:
            raise InvalidInput(
                "attn (H, d, d) and value (H, d, e) must agree in H and d; "
                f"got {attn.shape} and {value.shape}."
            )
        bias = require_flag("bias", self.bias)
        if bias and attn.shape[1] < 2:
            raise InvalidInput("with bias=True attn must have at least 2 rows: one is constant.")
        require_choice("mode", self.mode, MODES)
        vars(self).update(attn=attn, value=value, bias=bias)

    @property
    def n_heads(self) -> int:
        """H, the number of heads."""
        return self.attn.shape[0]

    @property
    def n_dims(self) -> int:
        """Coordinates of an input token (without the constant one of ``bias``)."""
        return self.attn.shape[1] - self.bias

    @property
    def n_outputs(self) -> int:
        """e, the coordinates of an output."""
        return self.value.shape[2]

    def __call__(self, X: Sequences) -> Any:
        """Outputs for sequences X, in the form of X.

        (N, n, d) gives (N, e) in mode ``last`` and (N, n, e) otherwise; one sequence (n, d)
        gives (e,) or (n, e).  A list or a SequenceBatch gives (N, e) or a list of (n_i, e).
        """
        return shaped_outputs(X, self.n_dims, self.mode, self._rows)

    def __eq__(self, other: object) -> bool:
        """Equal parameters; for equal functions see ``same_function``."""
        if not isinstance(other, type(self)):
            return NotImplemented
        return (
            (self.mode, self.bias) == (other.mode, other.bias)
            and np.array_equal(self.attn, other.attn)
            and np.array_equal(self.value, other.value)
        )

    def __hash__(self) -> int:
        # Adding zero turns -0.0 into 0.0: the two are equal and must hash alike.
        numbers = ((array + 0.0).tobytes() for array in (self.attn, self.value))
        return hash((self.kind, self.mode, self.bias, *numbers))

    def __repr__(self) -> str:
        heads, bias = counted(self.n_heads, "head"), ", bias" if self.bias else ""
        sizes = f"{self.n_dims} -> {self.n_outputs}"
        return f"{type(self).__name__}({heads}, {sizes}, mode {self.mode!r}{bias})"

    def describe(self) -> Description:
        sizes: dict[str, Any] = {"n_dims": self.n_dims, "n_outputs": self.n_outputs}
        sizes |= {"mode": self.mode, "bias": self.bias}
        kind = self.kind.removesuffix("_attention").capitalize()
        about = f"{kind} attention, {counted(self.n_heads, 'head')}, {sizes_in_words(**sizes)}"
        return Description(
            "An attention layer", about, sizes={"n_heads": self.n_heads, **sizes},
            matrices=head_matrices(self.attn, self.value),
        )  # fmt: skip

    def arrays(self) -> dict[str, NDArray]:
        """The heads."""
        return {"attn": self.attn, "value": self.value}

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata."""
        return Record(self.kind, self.arrays(), {"mode": self.mode, "bias": self.bias})

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """The inverse of ``to_record``."""
        ARRAYS(record.arrays, "arrays")
        FIELDS(record.metadata, "metadata")
        return cls(record.arrays["attn"], record.arrays["value"], **record.metadata)

    def _rows(self, batch: SequenceBatch) -> NDArray[np.float64]:
        """Outputs (n_rows, e) at the predicted positions."""
        raise NotImplementedError

    @cached_property
    def _scaled_heads(self) -> tuple[NDArray, NDArray, int, int]:
        """Heads of order one and the powers of two taken out of attn and of value."""
        of_attn = scaling.exponent_for(scaling.largest_magnitude(self.attn)) or 0
        of_value = scaling.exponent_for(scaling.largest_magnitude(self.value)) or 0
        attn, value = scaling.scaled(self.attn, -of_attn), scaling.scaled(self.value, -of_value)
        return attn, value, of_attn, of_value


def shaped_outputs(
    X: Sequences, n_dims: int, mode: str, compute: Callable[[SequenceBatch], NDArray]
) -> Any:
    """Outputs for sequences X, in the form of X: see ``AttentionLayer.__call__``.

    compute : from a batch to its outputs (n_rows, e)
    """
    single = getattr(X, "ndim", None) == 2
    batch = as_batch(np.asarray(X)[None] if single else X, n_dims=n_dims)
    outputs: Any = compute(batch)
    if mode != "last":
        as_list = batch.common_length is None or isinstance(X, list | tuple | SequenceBatch)
        outputs = (
            np.split(outputs, batch.offsets[1:-1])
            if as_list
            else outputs.reshape(len(batch), batch.common_length, -1)
        )
    return outputs[0] if single else outputs


def outputs_by_block(
    tokens: Tokens, mode: str, n_outputs: int, attend: Callable[[NDArray], NDArray]
) -> NDArray[np.float64]:
    """Outputs (n_rows, e) of all predicted positions.

    attend : from sequences X (B, n, d) of one length to their outputs (B, e) or (B, n, e)
    """
    batch = tokens.batch
    outputs = np.empty((batch.n_rows(mode), n_outputs))
    for first, stop, X in equal_blocks(tokens):
        start, end = (first, stop) if mode == "last" else batch.offsets[[first, stop]]
        outputs[start:end] = attend(X).reshape(end - start, -1)
        report(int(end), len(outputs))
    return outputs


def equal_blocks(tokens: Tokens) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
    """Runs of neighbouring sequences of one length, as (first, stop, X (B, n, d))."""
    offsets, lengths = tokens.batch.offsets, tokens.batch.lengths
    borders = np.flatnonzero(np.diff(lengths)) + 1
    for run, next_run in zip([0, *borders], [*borders, len(lengths)], strict=True):
        step = max(1, BLOCK_TOKENS // int(lengths[run]))
        for first in range(int(run), int(next_run), step):
            stop = min(first + step, int(next_run))
            block = tokens.read(slice(offsets[first], offsets[stop]))
            X = np.ascontiguousarray(block.T)
            yield first, stop, X.reshape(stop - first, -1, tokens.width)


def ordinary_tokens(
    batch: SequenceBatch, bias: bool, *matrices: NDArray, degree: int = 3
) -> Tokens:
    """Tokens of order one: those of extreme size are divided by a power of two.

    Refused where they differ so much in size, and the ``matrices`` that multiply them so much the
    other way, that products of this ``degree`` underflow which count.
    """
    most = MOST_SPREAD / degree
    if any(scaling.spread(np.abs(matrix)) > most for matrix in matrices):
        sizes = scaling.column_magnitudes(pieces(batch.values), batch.n_dims)
        between = scaling.spread(np.append(sizes, 1.0) if bias else sizes)
        if between > most:
            raise OutOfRange(
                f"the coordinates of X differ in size by a factor of about 2**{between:.0f}, and "
                "so do the layer's entries; their products do not fit float64. Give tokens whose "
                "coordinates are of similar size, and a layer in these units."
            )
    largest = scaling.largest_magnitude(batch.values)
    return Tokens(batch, bias, scaling.exponent_for(max(largest, 1.0) if bias else largest) or 0)


def _matrices(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """A read-only float64 copy of shape (H, rows, columns)."""
    array = real_array(values, name)
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or 0 in array.shape:
        raise InvalidInput(
            f"{name} must have shape (H, d, ...) with at least one head and one coordinate; "
            f"got {array.shape}."
        )
    require_finite(array, name)
    copied = np.array(array, dtype=np.float64, order="C")
    copied.setflags(write=False)
    return copied
