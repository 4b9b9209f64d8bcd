"""Outputs head by head: scores inside chunks of tokens, earlier chunks by their sums.

With q_t, k_s, v_s of the form, each head adds  sum_s w(t, s) (q_t A k_s) v_s V.  In mode ``causal``
the tokens of a sequence stand in chunks of C.  A chunk sees itself, and the chunks in which a
window ends, by scores; all whole chunks between by their sums of k_s v_s^T, which decay from chunk
to chunk.  Cost: O(C (r_k + r_v) + r r_k + r_k r_v + r_v e) per token and head.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.features.running_sums import (
    EVERY_TOKEN,
    decayed_sums,
    window_sums,
)
from polyattn.features.summaries import SeenSequences
from polyattn.form.form import Form, Scale
from polyattn.form.layout import Layout
from polyattn.model.layer import equal_groups, in_sequences, predicted_rows, tokens_of
from polyattn.progress import report

# Tokens of a causal chunk: the scores of a chunk then stay in the first cache.
CHUNK = 32

# What one entry of a running sum costs beside that of the papers' layer, in flops of a product.
OTHER_SUM, WINDOW_SUM = 20, 120


class ScaleHeads(NamedTuple):
    """The heads attn (h, r, rk) and value (h, rv, e) of one scale."""

    scale: Scale
    attn: NDArray[np.float64]
    value: NDArray[np.float64]

    def each(self) -> Iterator[tuple[NDArray, NDArray]]:
        """A and V of one head after the other."""
        return zip(self.attn, self.value, strict=True)


def heads_by_scale(
    form: Form, attn: NDArray, value: NDArray, head_scales: NDArray[np.int64]
) -> list[ScaleHeads]:
    """The heads of each scale of the form; scales without heads are left out."""
    if len(form.scales) == 1:
        return [ScaleHeads(form.scales[0], attn, value)]
    chosen = ((scale, head_scales == number) for number, scale in enumerate(form.scales))
    return [ScaleHeads(scale, attn[own], value[own]) for scale, own in chosen if own.any()]


def by_heads(seen: SeenSequences, heads: list[ScaleHeads]) -> NDArray[np.float64]:
    """Outputs (n_rows, e) of all heads, of sequences divided by their powers of two."""
    form, n_outputs, done = seen.layout.form, heads[0].value.shape[2], 0
    outputs = np.empty((seen.batch.n_rows(form.mode), n_outputs))
    compute = {"last": _last, "causal": _causal, "full": _full}[form.mode]
    for rows, queries, keys, values in _blocks(seen):
        found = compute(form, heads, queries, keys, values).reshape(-1, n_outputs)
        outputs[rows] = found
        done += len(found)
        report(done, len(outputs))
    return outputs


def heads_are_faster(layout: Layout, heads: list[ScaleHeads]) -> bool:
    """Whether heads one by one take less time than their coefficients, by flops per row.

    Sums that the papers' layer needs too are left out on both sides.
    """
    n_queries, n_keys, n_values = len(layout.query), layout.pairs.n_keys, layout.pairs.n_values
    n_outputs, form = heads[0].value.shape[2], layout.form
    others_alone = form.mode == "full" and not form.include_query
    by_head, by_coef = 0, 2 * n_outputs * layout.n_products * n_queries
    for scale, attn, _ in heads:
        each = n_queries * n_keys + n_values * n_outputs
        alone = scale.stop is not None and scale.stop - scale.start == 1
        each += n_keys + n_values if alone else n_keys * n_values
        if not alone and (form.mode == "causal" or others_alone):
            each += CHUNK * (n_keys + n_values) * (1 if scale.stop is None else 3)
        by_head += 2 * len(attn) * each * (2 if others_alone else 1)
        if form.mode != "last" and scale != EVERY_TOKEN:
            by_coef += len(layout.pairs) * (OTHER_SUM if scale.stop is None else WINDOW_SUM)
    return by_head <= by_coef


Rows = slice | NDArray[np.int64]


def _blocks(seen: SeenSequences) -> Iterator[tuple[Rows, NDArray, NDArray, NDArray]]:
    """Rows, queries (B, 1 or n, r), keys (B, n, rk) and values of sequences of one length."""
    layout, mode = seen.layout, seen.layout.form.mode
    own, others = seen.batch, seen.attended.batch
    value, key = layout.pair_places
    query = None if layout.query_is_all_columns else layout.query
    lengths = (own.lengths,) if others is own else (own.lengths, others.lengths)
    for which in equal_groups(*lengths):
        rows, count = predicted_rows(own, mode, which), len(which)
        columns = seen.attended.read(tokens_of(others, which))
        values = _picked(columns, value, count)
        keys = values if _same(key, value) else _picked(columns, key, count)
        if seen.context is not None:
            at = own.offsets[which + 1] - 1 if mode == "last" else rows
            queries = in_sequences(seen.queries(at), count)
        elif mode == "last":
            ends = columns.reshape(len(columns), count, -1)[:, :, -1]
            queries = _picked(ends, query, count)
        else:
            queries = values if _same(query, value) else _picked(columns, query, count)
        yield rows, queries, keys, values


def _last(
    form: Form, heads: list[ScaleHeads], queries: NDArray, keys: NDArray, values: NDArray
) -> NDArray[np.float64]:
    """(B, e): scores of one query only, O(n (r_k + r_v)) per head."""
    n_tokens, asked = keys.shape[1], queries[:, 0]
    outputs = np.zeros((len(asked), heads[0].value.shape[2]))
    for own in heads:
        attended = own.scale.attended(n_tokens)
        K, V = keys[:, attended], values[:, attended]
        weights = own.scale.weights(n_tokens - 1 - np.arange(attended.start, attended.stop))
        for A, W in own.each():
            scores = K @ (asked @ A)[:, :, None]
            if weights is not None:
                scores *= weights[:, None]
            outputs += (scores.transpose(0, 2, 1) @ V)[:, 0] @ W
    if form.mean:
        outputs /= max(int(form.n_attended(np.array(n_tokens))), 1)
    return outputs


def _full(
    form: Form, heads: list[ScaleHeads], queries: NDArray, keys: NDArray, values: NDArray
) -> NDArray[np.float64]:
    """(B, n, e) through the sums of each sequence."""
    (own,) = heads
    if form.include_query:
        sums = keys.transpose(0, 2, 1) @ values
        # One (r, e) matrix per sequence serves all its tokens, whatever the number of heads.
        outputs = queries @ sum(A @ sums @ W for A, W in own.each())
    else:
        # Tokens before and tokens after: nothing is subtracted.
        outputs = _causal_scale(own, queries, keys, values)
        backwards = (each[:, ::-1] for each in (queries, keys, values))
        outputs += _causal_scale(own, *backwards)[:, ::-1]
    if form.mean:
        outputs /= max(int(form.n_attended(np.array(keys.shape[1]))), 1)
    return outputs


def _causal(
    form: Form, heads: list[ScaleHeads], queries: NDArray, keys: NDArray, values: NDArray
) -> NDArray[np.float64]:
    """(B, n, e): every token attends to itself and to those before."""
    outputs = _causal_scale(heads[0], queries, keys, values)
    for own in heads[1:]:
        outputs += _causal_scale(own, queries, keys, values)
    if form.mean:
        attended = form.n_attended(1 + np.arange(queries.shape[1]))
        outputs /= np.maximum(attended, 1)[:, None]
    return outputs


def _causal_scale(
    heads: ScaleHeads, queries: NDArray, keys: NDArray, values: NDArray
) -> NDArray[np.float64]:
    """The heads of one scale, (B, n, e)."""
    n_sequences, n_tokens, _ = queries.shape
    scale, start = heads.scale, heads.scale.start
    width = None if scale.stop is None or scale.stop >= n_tokens else scale.stop - start
    if start == 0 and width != 1:
        return _in_chunks(width, heads, queries, keys, values)
    outputs = np.zeros((n_sequences, n_tokens, heads.value.shape[2]))
    if start >= n_tokens:
        return outputs
    # Tokens at distance ``start`` come as if they stood at the query.
    late, n_seen = outputs[:, start:], n_tokens - start
    queries, keys, values = queries[:, start:], keys[:, :n_seen], values[:, :n_seen]
    if width == 1:
        for A, W in heads.each():
            scores = np.einsum("btk,btk->bt", queries @ A, keys)
            late += (scores[:, :, None] * values) @ W
    else:
        late += _in_chunks(width, heads, queries, keys, values)
    if scale.decay != 1.0:
        late *= scale.decay**start
    return outputs


def _in_chunks(
    width: int | None, heads: ScaleHeads, queries: NDArray, keys: NDArray, values: NDArray
) -> NDArray[np.float64]:
    """Distances 0 <= t - s < width, or all; weights decay^(t - s)."""
    n_sequences, n_tokens, _ = queries.shape
    chunk, decay = min(CHUNK, n_tokens), heads.scale.decay
    V = _chunks(values, chunk)
    K = V if keys is values else _chunks(keys, chunk)
    Q = V if queries is values else _chunks(queries, chunk)
    places = np.arange(chunk)
    to_end = K if decay == 1.0 else K * (decay ** (chunk - 1.0 - places))[:, None]
    # Whole chunks between are seen by their sums, those that the window cuts by scores.
    n_whole = None if width is None else width // chunk - 1
    earlier = _earlier(to_end.transpose(0, 1, 3, 2) @ V, n_whole, decay**chunk)
    from_start = None if decay == 1.0 else (decay ** (places + 1.0))[:, None]
    cut = [0] if width is None else sorted({0, width // chunk, width // chunk + 1})
    shown = [
        (
            _later(K, back).transpose(0, 1, 3, 2),
            _later(V, back),
            _weights(chunk, back, width, decay),
        )
        for back in cut
    ]
    outputs = np.zeros((*Q.shape[:3], heads.value.shape[2]))
    for A, W in heads.each():
        asked = Q @ A
        mixed = np.zeros(()) if earlier is None else asked @ earlier
        if from_start is not None:
            mixed = mixed * from_start
        for keys_there, values_there, weights in shown:
            scores = asked @ keys_there
            scores *= weights
            mixed = mixed + scores @ values_there
        outputs += mixed @ W
    return outputs.reshape(n_sequences, -1, outputs.shape[3])[:, :n_tokens]


def _earlier(sums: NDArray, n_whole: int | None, decay: float) -> NDArray[np.float64] | None:
    """Sums over the chunks before each one, or over ``n_whole`` of them; None where that is 0."""
    if n_whole is not None and n_whole < 1:
        return None
    along = np.moveaxis(sums, 1, -1)
    if n_whole is not None:
        total = np.moveaxis(window_sums(along, n_whole, decay), -1, 1)
    elif decay == 1.0:
        total = np.cumsum(sums, axis=1)
    else:
        total = np.moveaxis(decayed_sums(along, decay), -1, 1)
    return np.concatenate([np.zeros_like(total[:, :1]), total[:, :-1]], axis=1)


def _weights(chunk: int, back: int, width: int | None, decay: float) -> NDArray[np.float64]:
    """Weights (C, C) with which a chunk sees the one that stands ``back`` chunks before it."""
    places = np.arange(chunk)
    distances = back * chunk + places[:, None] - places
    attended = (distances >= 0) & (distances < (np.inf if width is None else width))
    return np.where(attended, decay ** np.maximum(distances, 0.0), 0.0)


def _chunks(tokens: NDArray, chunk: int) -> NDArray[np.float64]:
    """Tokens (B, n, width) as (B, chunks, C, width), with zeros behind them."""
    n_sequences, n_tokens, width = tokens.shape
    padded = np.zeros((n_sequences, -(-n_tokens // chunk) * chunk, width))
    padded[:, :n_tokens] = tokens
    return padded.reshape(n_sequences, -1, chunk, width)


def _later(chunks: NDArray, back: int) -> NDArray[np.float64]:
    """The chunks that stand ``back`` before each one; zeros where there is none."""
    if back == 0:
        return chunks
    moved = np.zeros_like(chunks)
    moved[:, back:] = chunks[:, :-back]
    return moved


def _picked(columns: NDArray, which: NDArray | None, count: int) -> NDArray[np.float64]:
    return in_sequences(columns if which is None else columns[which], count)


def _same(one: NDArray | None, other: NDArray | None) -> bool:
    """Whether these are the same columns; None stands for all of them."""
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)
