"""LinearAttention: F(X) = sum_h (X A_h X^T) X V_h, and every other form that is linear in A ⊗ V.

Notation (ours -> Yau et al., whose tokens are columns Z = X^T; -> Chen & Li):
    attn   A_h (d, d)  ->  Q_h^T    ->  Theta_h
    value  V_h (d, e)  ->  V_h^T    ->  W_h

The cost of a forward pass is linear in the length of a sequence: y_t = sum_h x_t A_h G_t V_h with
G_t the Gram matrix of the tokens that t attends to.  Heads are applied one by one (``by_heads``);
many of them are folded into coefficients first, whose cost does not depend on H (``forward``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.display import Description
from polyattn.errors import InvalidInput, require_integer
from polyattn.files.fields import array, entries, integer, listed
from polyattn.files.records import Record
from polyattn.form.form import Form, require_form
from polyattn.form.in_words import form_in_words, form_sizes
from polyattn.form.layout import Layout
from polyattn.form.of_layout import OfLayout
from polyattn.form.pairs import fold_heads
from polyattn.form.stored import FORM_FIELDS, form_fields, stored_layout
from polyattn.model import layer as shared
from polyattn.model.by_heads import ScaleHeads, by_heads, heads_are_faster, heads_by_scale
from polyattn.model.by_symbols import by_symbols, sees_symbols
from polyattn.model.forward import added, by_coef, degree_three, linear_parts, ordinary_sequences
from polyattn.model.layer import (
    AttentionLayer,
    far_apart,
    matrices,
    outputs_with_context,
    square_heads,
)
from polyattn.numerics.arrays import real_array
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.scaling import restored
from polyattn.quoting import counted, shown
from polyattn.sequences import SequenceBatch, Sequences
from polyattn.sources.source import Source

# What files hold; fields that are no more than heads, mode and bias are those of other forms.
ARRAYS = entries(shared.HEADS, {"skip": array((None, None)), "intercept": array((None,))})
SIZES = {"n_dims": integer(1), "head_scales": listed(integer(0), 1)}
FIELDS = entries(shared.POSITIONS, FORM_FIELDS | SIZES)


@dataclass(frozen=True, eq=False, repr=False, init=False, kw_only=True)
class LinearAttention(OfLayout, AttentionLayer):
    """A multi-head linear attention layer.

    For a predicted position with query token x (a row) that attends to tokens of Gram matrix G,

        y = sum_h  x A_h G V_h,      y_a = sum_{j<=k, l} coef[a, (jk), l] G[j,k] x[l].

    A ``form`` changes what is seen of tokens, which of them are attended to, and with which
    weights; then, with the maps q, k and v of the form and weights w of its scales,

        y_t = sum_h sum_s w_h(t, s) (q_t A_h k_s) v_s V_h  +  q_t skip  +  intercept.

    Parameters
    ----------
    attn : array (H, d, d), or (d, d) for one head
        Of a form: (H, r, rk) with r numbers of a query and rk of a key, constants included.
    value : array (H, d, e), or (d, e) for one head
        Of a form: (H, rv, e) with rv numbers of a value.
    mode : "last" | "causal" | "full"
        ``last``: one output, for the last token attending to all; ``causal``: one output per
        token, attending to itself and those before; ``full``: one per token, attending to all.
    bias : bool
        Inputs have one coordinate fewer than ``attn``; a constant 1 is appended to each token.
    form : Form, optional
        The layer, instead of ``mode`` and ``bias``.
    n_dims : int, optional
        Coordinates of a token, where the shapes do not say it: ``query``, ``key`` and ``value``
        of the form all pick or map.
    n_context_dims : int, optional
        Coordinates of a token of the ``context`` that is attended to, instead of X itself.
    head_scales : integers (H,), optional
        Which of ``form.scales`` each head has; needed where there are several.
    skip : array (r, e), optional
        The linear map of the query, of forms with ``skip``; by default zero.
    intercept : array (e,), optional
        The constant that is added, of forms with ``intercept``; by default zero.

    Cost of a call: O(n d^2) per sequence and head; the n x n scores are never formed.

    Examples
    --------
    >>> import numpy as np
    >>> import polyattn as pa
    >>> form = pa.Form(mode="causal", decay=0.5)
    >>> layer = pa.LinearAttention(np.ones((1, 1)), np.ones((1, 1)), form=form)
    >>> layer(np.array([[2.0], [0.0], [1.0]])).tolist()
    [[8.0], [0.0], [2.0]]
    """

    layout: Layout
    head_scales: NDArray[np.int64]
    skip: NDArray[np.float64] | None
    intercept: NDArray[np.float64] | None

    kind: ClassVar[str] = "linear_attention"

    def __init__(
        self,
        attn: ArrayLike,
        value: ArrayLike,
        mode: str = "last",
        bias: bool = False,
        *,
        form: Form | None = None,
        n_dims: int | None = None,
        n_context_dims: int | None = None,
        head_scales: ArrayLike | None = None,
        skip: ArrayLike | None = None,
        intercept: ArrayLike | None = None,
    ) -> None:
        chosen = require_form(form, mode, bias)
        if form is None and n_context_dims is None:
            attn, value = square_heads(attn, value, chosen.bias)
        else:
            attn, value = matrices(attn, "attn"), matrices(value, "value")
        if n_context_dims is not None:
            n_context_dims = require_integer("n_context_dims", n_context_dims)
        own = _known_dims(chosen, attn, value, n_dims, n_context_dims)
        layout = Layout.of(chosen, own, n_context_dims)
        _require_shapes(layout, attn, value)
        n_queries, n_outputs = len(layout.query), value.shape[2]
        vars(self).update(
            attn=attn, value=value, layout=layout,
            head_scales=_checked_scales(head_scales, len(attn), layout.n_scales),
            skip=_linear(skip, "skip", chosen.skip, (n_queries, n_outputs)),
            intercept=_linear(intercept, "intercept", chosen.intercept, (n_outputs,)),
        )  # fmt: skip

    @cached_property
    def coef(self) -> NDArray[np.float64]:
        """The folded coefficients P (e, m, r): all that data can see of the layer.

        Of the papers' layer (e, q, d), pairs j <= k in the order of ``numpy.triu_indices``
        [yau2024: Corollary A.4].
        """
        _, _, of_attn, of_value = self._scaled_heads
        coef = restored(self._folded, of_attn + of_value, "the coefficients")
        if self.skip is not None or self.intercept is not None:
            n_outputs, n_products, n_queries = coef.shape
            whole = np.zeros((n_outputs, self.layout.n_sums, self.layout.n_queries))
            whole[:, :n_products, :n_queries] = coef
            if self.skip is not None:
                whole[:, n_products, :n_queries] = self.skip.T
            if self.intercept is not None:
                whole[:, -1, -1] = self.intercept
            coef = whole
        coef.setflags(write=False)
        return coef

    def __call__(self, X: Sequences | Source, context: Sequences | None = None) -> Any:
        """Outputs for sequences X, in the form of X.

        (N, n, d) gives (N, e) in mode ``last`` and (N, n, e) otherwise; one sequence (n, d)
        gives (e,) or (n, e).  A list or a SequenceBatch gives (N, e) or a list of (n_i, e).

        context : the sequences attended to, one for each of X, if the layer has
            ``n_context_dims``; in mode ``causal`` as long as those of X
        """
        return outputs_with_context(X, context, self.layout, self._rows)

    def __eq__(self, other: object) -> bool:
        """Equal parameters; for equal functions see ``same_function``."""
        if not isinstance(other, LinearAttention):
            return NotImplemented
        mine, theirs = self.arrays(), other.arrays()
        return (
            self.layout == other.layout
            and np.array_equal(self.head_scales, other.head_scales)
            and all(np.array_equal(mine[name], theirs[name]) for name in mine)
        )

    def __hash__(self) -> int:
        return hash((super().__hash__(), self.layout, self.head_scales.tobytes()))

    def __repr__(self) -> str:
        if self.layout.is_plain:
            return super().__repr__()
        context = "" if self.n_context_dims is None else f", context of {self.n_context_dims}"
        sizes = f"{counted(self.n_heads, 'head')}, {self.n_dims} -> {self.n_outputs}"
        return f"LinearAttention({sizes}{context}, {self.form!r})"

    def describe(self) -> Description:
        described = super().describe()
        if self.layout.is_plain:
            return described
        about = f"{described.about}, {form_in_words(self.layout)}"
        sizes = described.sizes | form_sizes(self.layout)
        return Description(described.title, about, sizes=sizes, matrices=described.matrices)

    def arrays(self) -> dict[str, NDArray]:
        """The heads, and what is added to them."""
        linear = {"skip": self.skip, "intercept": self.intercept}
        return super().arrays() | {name: each for name, each in linear.items() if each is not None}

    def to_record(self) -> Record:
        record = super().to_record()
        if self.layout.is_plain:
            return record
        more = {"n_dims": self.n_dims, "head_scales": self.head_scales.tolist()}
        more |= form_fields(self.layout)
        return Record(record.kind, record.arrays, record.metadata | more)

    @classmethod
    def from_record(cls, record: Record) -> Self:
        ARRAYS(record.arrays, "arrays")
        FIELDS(record.metadata, "metadata")
        width = record.arrays["attn"].shape[1]
        layout = stored_layout({"n_dims": width - record.metadata["bias"]} | record.metadata)
        content: dict[str, Any] = {**record.arrays, "form": layout.form, "n_dims": layout.n_dims}
        content["n_context_dims"] = layout.n_context_dims
        return cls(**content, head_scales=record.metadata.get("head_scales"))

    @cached_property
    def _folded(self) -> NDArray[np.float64]:
        """Coefficients (e, n_products, r) of the heads of order one."""
        return self.folded_queries(slice(None))

    def folded_queries(self, some: slice) -> NDArray[np.float64]:
        """The part (e, n_products, k) of ``_folded`` that belongs to k numbers of the query."""
        attn, value, _, _ = self._scaled_heads
        attn, layout, count = attn[:, some], self.layout, len(self.layout.pairs)
        if layout.n_scales == 1:
            return fold_heads(attn, value, layout.pairs)
        folded = np.zeros((self.n_outputs, layout.n_products, attn.shape[1]))
        for number in np.unique(self.head_scales):
            own, rows = self.head_scales == number, slice(number * count, (number + 1) * count)
            folded[:, rows] = fold_heads(attn[own], value[own], layout.pairs)
        return folded

    @cached_property
    def _fast_heads(self) -> list[ScaleHeads] | None:
        """The heads of order one by scale; None where their coefficients are faster."""
        attn, value, _, _ = self._scaled_heads
        heads = heads_by_scale(self.form, attn, value, self.head_scales)
        return heads if heads_are_faster(self.layout, heads) else None

    @cached_property
    def _far_apart(self) -> bool:
        """Whether numbers that multiply tokens differ so much in size that tokens may not."""
        attn, value, _, _ = self._scaled_heads
        matrices = (self._folded,) if self._fast_heads is None else (attn, value)
        return far_apart(matrices if self.skip is None else (*matrices, self.skip), 3)

    @single_threaded_blas()
    def _rows(
        self, batch: SequenceBatch, context: SequenceBatch | None = None
    ) -> NDArray[np.float64]:
        attn, value, of_attn, of_value = self._scaled_heads
        if sees_symbols(batch, self.form, context):
            return added([(by_symbols(batch, self.form, attn, value), of_attn + of_value)])
        seen = ordinary_sequences(self.layout, batch, context, self._far_apart)
        if self._fast_heads is not None:
            outputs, power = by_heads(seen, self._fast_heads), degree_three(seen)
        else:
            outputs, power = by_coef(seen, self._folded)
        others = linear_parts(seen, self.skip, self.intercept)
        return added([(outputs, power + of_attn + of_value), *others])


def _known_dims(
    form: Form, attn: NDArray, value: NDArray, n_dims: int | None, n_context_dims: int | None
) -> int:
    """Coordinates of a token, as given or as the shapes say it."""
    if n_dims is not None:
        return require_integer("n_dims", n_dims)
    shapes = {"query": attn.shape[1], "key": attn.shape[2], "value": value.shape[1]}
    roles = ("query",) if n_context_dims is not None else ("query", "key", "value")
    whole = [shapes[role] - form.bias for role in roles if getattr(form, role) is None]
    if not whole or whole[0] < 1:
        raise InvalidInput(
            "n_dims, the coordinates of a token, does not follow from the shapes of attn "
            f"{attn.shape} and value {value.shape} for {shown(form)}; give n_dims."
        )
    return whole[0]


def _require_shapes(layout: Layout, attn: NDArray, value: NDArray) -> None:
    n_queries, pairs = len(layout.query), layout.pairs
    fits = attn.shape[1:] == (n_queries, pairs.n_keys) and value.shape[1] == pairs.n_values
    if not fits or len(attn) != len(value):
        constant = ", constants included" if layout.form.bias else ""
        raise InvalidInput(
            f"attn must have shape (H, {n_queries}, {pairs.n_keys}) and value (H, "
            f"{pairs.n_values}, e): the numbers that {shown(layout.form)} sees of a query, a key "
            f"and a value{constant}; got {attn.shape} and {value.shape}."
        )


def _checked_scales(given: ArrayLike | None, n_heads: int, n_scales: int) -> NDArray[np.int64]:
    if given is None and n_scales > 1:
        raise InvalidInput(
            f"the form has {n_scales} scales; give head_scales, {n_heads} integers from 0 to "
            f"{n_scales - 1} that say which of form.scales each head has."
        )
    scales = np.zeros(n_heads, dtype=np.int64) if given is None else np.array(given)
    if given is not None and (scales.shape != (n_heads,) or scales.dtype.kind not in "iu"):
        raise InvalidInput(
            f"head_scales must be {counted(n_heads, 'integer')}, one for each head; got "
            f"{shown(given)}."
        )
    if given is not None and (scales.min() < 0 or scales.max() >= n_scales):
        raise InvalidInput(
            f"head_scales must lie between 0 and {n_scales - 1}, the scales of the form; got "
            f"{shown(scales.tolist())}."
        )
    scales = scales.astype(np.int64, copy=False)
    scales.setflags(write=False)
    return scales


def _linear(
    given: ArrayLike | None, name: str, wanted: bool, shape: tuple[int, ...]
) -> NDArray[np.float64] | None:
    """``skip`` or ``intercept``, checked; zeros where the form has it and none was given."""
    if not wanted:
        if given is not None:
            raise InvalidInput(f"{name} was given, but the form has none: give Form({name}=True).")
        return None
    numbers = np.zeros(shape) if given is None else real_array(given, name)
    if numbers.shape != shape:
        raise InvalidInput(f"{name} must have shape {shape}; got {numbers.shape}.")
    return shared.kept(numbers, name)
