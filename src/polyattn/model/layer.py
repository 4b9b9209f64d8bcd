"""What linear and softmax layers share: heads, checks, records, and forward passes in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.display import SHOWN_DIMS, Described, Description, Reported, head_matrices
from polyattn.errors import InvalidInput, OutOfRange
from polyattn.features.tokens import Tokens
from polyattn.files.fields import array, entries, flag, one_of
from polyattn.files.records import Record
from polyattn.form.context import as_context
from polyattn.form.layout import Layout
from polyattn.numerics import scaling
from polyattn.numerics.arrays import real_array, require_finite
from polyattn.progress import report
from polyattn.quoting import counted
from polyattn.sequences import MODES, SequenceBatch, Sequences, as_batch, is_indexed, is_list
from polyattn.sizes_in_words import sizes_in_words
from polyattn.sources.of_chunks import of_chunks
from polyattn.sources.source import Source, require_alone

# What files hold of a layer; that the arrays agree is checked where a layer is made.
HEADS = {"attn": array((None, None, None)), "value": array((None, None, None))}
POSITIONS = {"mode": one_of(MODES), "bias": flag}
ARRAYS, FIELDS = entries(HEADS), entries(POSITIONS)

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

    @property
    def n_heads(self) -> int:
        """H, the number of heads."""
        return self.value.shape[0]

    @property
    def n_dims(self) -> int:
        """Coordinates of an input token (without the constant one of ``bias``)."""
        return self.value.shape[1] - self.bias

    @property
    def n_outputs(self) -> int:
        """e, the coordinates of an output."""
        return self.value.shape[2]

    def __call__(self, X: Sequences | Source) -> Any:
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
        return hash((self.kind, self.mode, self.bias, *hashable(self.attn, self.value)))

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
            # Those of a wide layer are not looked at, and need not be made.
            matrices={} if max(self.value.shape[1:]) > SHOWN_DIMS else self._matrices(),
        )  # fmt: skip

    def _matrices(self) -> dict[str, list[list[float]]]:
        return head_matrices(self.attn, self.value)

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
        (attn, of_attn), (value, of_value) = map(scaling.of_order_one, (self.attn, self.value))
        return attn, value, of_attn, of_value


def hashable(*arrays: NDArray) -> Iterator[bytes]:
    """The numbers of arrays; those of equal arrays are equal."""
    # Adding zero turns -0.0 into 0.0: the two are equal and must hash alike.
    return ((array + 0.0).tobytes() for array in arrays)


def square_heads(
    attn: ArrayLike, value: ArrayLike, bias: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Checked heads whose queries, keys and values are whole tokens: (H, d, d) and (H, d, e)."""
    attn, value = matrices(attn, "attn"), matrices(value, "value")
    if attn.shape[1] != attn.shape[2]:
        raise InvalidInput(f"attn must have shape (H, d, d); got {attn.shape}.")
    if attn.shape[:2] != value.shape[:2]:
        raise InvalidInput(
            "attn (H, d, d) and value (H, d, e) must agree in H and d; "
            f"got {attn.shape} and {value.shape}."
        )
    if bias and attn.shape[1] < 2:
        raise InvalidInput("with bias=True attn must have at least 2 rows: one is constant.")
    return attn, value


def matrices(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """A read-only float64 copy of shape (H, rows, columns)."""
    array = real_array(values, name)
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or 0 in array.shape:
        raise InvalidInput(
            f"{name} must have shape (H, d, ...) with at least one head and one coordinate; "
            f"got {array.shape}."
        )
    return kept(array, name)


def kept(array: NDArray, name: str) -> NDArray[np.float64]:
    """A read-only float64 copy of finite numbers."""
    require_finite(array, name)
    copied = np.array(array, dtype=np.float64, order="C")
    copied.setflags(write=False)
    return copied


def shaped_outputs(
    X: Sequences | Source, n_dims: int, mode: str, compute: Callable[[SequenceBatch], NDArray]
) -> Any:
    """Outputs for sequences X, in the form of X: see ``AttentionLayer.__call__``.

    compute : from a batch to its outputs (n_rows, e)
    """
    if isinstance(X, Source):
        return of_chunks(X, lambda data: shaped_outputs(data.batch, n_dims, mode, compute))
    single = getattr(X, "ndim", None) == 2 and not is_indexed(X)
    batch = as_batch(real_array(X, "X", True)[None] if single else X, n_dims=n_dims)
    outputs: Any = compute(batch)
    if mode != "last":
        as_list = batch.common_length is None or isinstance(X, SequenceBatch) or is_list(X)
        as_list = as_list or is_indexed(X)
        outputs = (
            np.split(outputs, batch.offsets[1:-1])
            if as_list
            else outputs.reshape(len(batch), batch.common_length, -1)
        )
    return outputs[0] if single else outputs


def outputs_with_context(
    X: Sequences | Source,
    context: Sequences | None,
    layout: Layout,
    compute: Callable[[SequenceBatch, SequenceBatch | None], NDArray],
) -> Any:
    """``shaped_outputs`` of a layer that may attend to a context, one sequence for each of X.

    compute : from a batch and its context to its outputs (n_rows, e)
    """
    if isinstance(X, Source):
        require_alone(context=context)
        return of_chunks(
            X, lambda data: outputs_with_context(data.batch, data.context, layout, compute)
        )
    if getattr(X, "ndim", None) == 2 and getattr(context, "ndim", None) == 2:
        context = real_array(context, "context", True)[None]

    def beside(batch: SequenceBatch) -> NDArray:
        return compute(batch, as_context(context, batch, layout.form, layout))

    return shaped_outputs(X, layout.n_dims, layout.form.mode, beside)


def outputs_by_block(
    tokens: Tokens, mode: str, n_outputs: int, attend: Callable[[NDArray], NDArray]
) -> NDArray[np.float64]:
    """Outputs (n_rows, e) of all predicted positions.

    attend : from sequences X (B, n, d) of one length to their outputs (B, e) or (B, n, e)
    """
    batch = tokens.batch
    outputs = np.empty((batch.n_rows(mode), n_outputs))
    done = 0
    for which, X in equal_blocks(tokens):
        found = attend(X).reshape(-1, n_outputs)
        outputs[predicted_rows(batch, mode, which)] = found
        done += len(found)
        report(done, len(outputs))
    return outputs


def equal_blocks(tokens: Tokens) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float64]]]:
    """Sequences of one length, as their numbers (B,) and X (B, n, d)."""
    for which in equal_groups(tokens.batch.lengths):
        block = tokens.read(tokens_of(tokens.batch, which))
        yield which, in_sequences(block, len(which))


def in_sequences(columns: NDArray, n_sequences: int) -> NDArray[np.float64]:
    """Tokens (B, n, width) from columns (width, B n)."""
    return np.ascontiguousarray(columns.T).reshape(n_sequences, -1, len(columns))


def equal_groups(*lengths: NDArray[np.int64]) -> Iterator[NDArray[np.intp]]:
    """Numbers of sequences whose lengths are equal, in groups of bounded size.

    lengths : those of the sequences (N,), and of others beside them
    """
    order, borders = np.arange(len(lengths[0])), []
    if any((each != each[0]).any() for each in lengths):
        order = np.lexsort(lengths)
        changes = np.any([np.diff(each[order]) != 0 for each in lengths], axis=0)
        borders = (np.flatnonzero(changes) + 1).tolist()
    for run, next_run in zip([0, *borders], [*borders, len(order)], strict=True):
        step = max(1, BLOCK_TOKENS // max(int(each[order[run]]) for each in lengths))
        for first in range(run, next_run, step):
            yield order[first : min(first + step, next_run)]


def tokens_of(batch: SequenceBatch, which: NDArray[np.intp]) -> slice | NDArray[np.int64]:
    """Where the tokens of these sequences of one length stand, one sequence after the other."""
    offsets = batch.offsets
    first, last = int(which[0]), int(which[-1])
    if last - first == len(which) - 1:
        return slice(int(offsets[first]), int(offsets[last + 1]))
    places = np.arange(offsets[first + 1] - offsets[first])
    return np.asarray(offsets[which][:, None] + places).ravel()


def predicted_rows(
    batch: SequenceBatch, mode: str, which: NDArray[np.intp]
) -> slice | NDArray[np.int64]:
    """Where the outputs of these sequences of one length stand."""
    return which if mode == "last" else tokens_of(batch, which)


def ordinary_tokens(
    batch: SequenceBatch, bias: bool, *matrices: NDArray, degree: int = 3
) -> Tokens:
    """Whole tokens of order one: those of extreme size are divided by a power of two."""
    return Tokens.whole(
        batch, bias, ordinary_exponent(batch, bias, far_apart(matrices, degree), degree)
    )


def ordinary_exponent(
    batch: SequenceBatch, bias: bool, parameters_apart: bool, degree: int = 3
) -> int:
    """The power of two that is taken out of whole tokens.

    Refused where they differ so much in size, and the matrices that multiply them so much the
    other way (``parameters_apart``), that products of this ``degree`` underflow which count.
    """
    if parameters_apart:
        require_products(Tokens.whole(batch, bias).columns.sizes(batch), degree)
    largest = scaling.largest_magnitude(batch.values)
    return scaling.exponent_for(max(largest, float(bias))) or 0


def far_apart(matrices: Iterable[NDArray], degree: int) -> bool:
    """Whether entries of one of these matrices differ more in size than columns may then do."""
    return any(scaling.spread(np.abs(each)) > MOST_SPREAD / degree for each in matrices)


def require_products(sizes: NDArray[np.float64], degree: int) -> None:
    """Refuse columns of such different sizes that products of this degree underflow."""
    between = scaling.spread(sizes)
    if between > MOST_SPREAD / degree:
        raise OutOfRange(
            f"the coordinates of X differ in size by a factor of about 2**{between:.0f}, and "
            "so do the layer's entries; their products do not fit float64. Give tokens whose "
            "coordinates are of similar size, and a layer in these units."
        )
