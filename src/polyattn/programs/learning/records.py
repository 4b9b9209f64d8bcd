"""Traces in files: their tokens and labels as arrays, schema by schema, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.files.fields import Check, any_object, array, entries, listed, require
from polyattn.programs.language.schema import Schema
from polyattn.programs.learning.checking import require_traces
from polyattn.programs.plain import plain_schema, schema_from
from polyattn.programs.traces import Trace

FIELDS = entries({"schemas": listed(any_object, least=1)})

# The columns of the table of traces.
SCHEMA, PROMPT, COMPLETION, CUT, LABELLED = range(5)


def plain_traces(traces: Sequence[Trace]) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """Named arrays and plain data that hold traces.

    ``trace_table`` (M, 5) has for each trace the number of its schema, how many tokens its prompt
    and its completion have, whether it was cut off, and whether it has labels; ``trace_tokens_s``
    and ``trace_labels_s`` are the tokens and the labels of all traces of schema s, in order.
    """
    schemas: list[Schema] = []
    table, tokens, labels = [], list[list[NDArray]](), list[list[NDArray]]()
    for trace in traces:
        number = next((i for i, each in enumerate(schemas) if _same(each, trace.schema)), None)
        if number is None:
            number = len(schemas)
            schemas.append(trace.schema)
            tokens.append([])
            labels.append([])
        labelled = trace.labels is not None
        table.append((number, len(trace.prompt), trace.n_rows, trace.cut, labelled))
        tokens[number].append(trace.tokens)
        if trace.labels is not None:
            labels[number].append(trace.labels)
    arrays = {"trace_table": np.array(table, dtype=np.int64)}
    for number, some in enumerate(tokens):
        arrays[f"trace_tokens_{number}"] = np.concatenate(some).astype(np.int64)
    for number, some in enumerate(labels):
        if some:
            arrays[f"trace_labels_{number}"] = np.concatenate(some).astype(np.float64)
    return arrays, {"schemas": [plain_schema(each) for each in schemas]}


def traces_from(
    arrays: dict[str, NDArray], plain: dict[str, Any], schema: Schema, any_size: bool
) -> list[Trace]:
    """The inverse of ``plain_traces``: traces that are fit to learn from, or a FileFormatError."""
    FIELDS(plain, "metadata.traces")
    schemas = [schema_from(each) for each in plain["schemas"]]
    table = arrays.get("trace_table")
    integers(None, 5)(table, "arrays.trace_table")
    assert table is not None  # noqa: S101 - it has just been checked
    fits = len(table) > 0 and bool(table.min() >= 0)
    require(fits, "arrays.trace_table", "of at least one trace, without negative sizes", table)
    known = bool(table[:, SCHEMA].max() < len(schemas))
    require(known, "arrays.trace_table", f"of schemas below {len(schemas)}", table[:, SCHEMA].max())
    flags = bool(table[:, CUT:].max() <= 1)
    require(flags, "arrays.trace_table", "0 or 1 in its last columns", table[:, CUT:].max())
    _require_sizes(arrays, table, schemas)
    found, places, labels_at = [], [0] * len(schemas), [0] * len(schemas)
    for number, n_prompt, n_rows, cut, labelled in table.tolist():
        start = places[number]
        prompt, end = start + n_prompt, start + n_prompt + n_rows
        places[number] = end
        tokens, labels = arrays[f"trace_tokens_{number}"], None
        if labelled:
            first = labels_at[number]
            labels = arrays[f"trace_labels_{number}"][first : first + n_rows]
            labels_at[number] += n_rows
        own = schemas[number]
        found.append(
            Trace(own, tokens[start:prompt], tokens[prompt:end], labels=labels, cut=bool(cut))
        )
    return list(require_traces("traces", found, schema, any_size))


def integers(*shape: int | None) -> Check:
    """An int64 array of this shape (None: any length)."""

    def checked(value: Any, where: str) -> None:
        fits = isinstance(value, np.ndarray) and value.dtype == np.int64
        fits = fits and len(value.shape) == len(shape)
        fits = fits and all(n in (None, m) for n, m in zip(shape, value.shape, strict=True))
        came = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else value
        require(fits, where, f"an int64 array of shape {shape}", came)

    return checked


def without_traces(arrays: dict[str, NDArray]) -> dict[str, NDArray]:
    """The arrays of a file that do not belong to its traces."""
    return {name: each for name, each in arrays.items() if not name.startswith("trace_")}


def _require_sizes(
    arrays: dict[str, NDArray], table: NDArray[np.int64], schemas: list[Schema]
) -> None:
    """Refuse tokens and labels that are not as many as the table says."""
    checks = {"trace_table": integers(None, 5)}
    for number, schema in enumerate(schemas):
        own = table[table[:, SCHEMA] == number]
        # As Python integers: those of a file may overflow when they are added.
        n_tokens = sum(own[:, PROMPT].tolist()) + sum(own[:, COMPLETION].tolist())
        checks[f"trace_tokens_{number}"] = integers(n_tokens, schema.n_dims)
        n_labels = sum(own[own[:, LABELLED] == 1, COMPLETION].tolist())
        if n_labels:
            checks[f"trace_labels_{number}"] = array((n_labels, schema.n_dims))
    own = {name: each for name, each in arrays.items() if name not in without_traces(arrays)}
    entries(checks)(own, "arrays")


def _same(one: Schema, other: Schema) -> bool:
    """Whether two schemas are the same, with the same encoding."""
    return one is other or (one == other and one.encoding == other.encoding)
