"""Traces to learn from: what is required of them, and how files hold them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType
from polyattn.files.fields import any_object, array, entries, listed, require
from polyattn.numerics.arrays import EXACT_INTEGER
from polyattn.programs.language.schema import Schema
from polyattn.programs.plain import plain_schema, schema_from
from polyattn.programs.traces import Trace

# Labels are squared and summed: beyond this they would overflow.
LARGEST = 1e100


def require_traces(
    name: str, traces: Iterable[Trace] | None, schema: Schema, any_size: bool = False
) -> Iterator[Trace]:
    """The traces one by one, each found fit for the schema; an error names the one that is not."""
    if isinstance(traces, Trace) or not isinstance(traces, Iterable):
        raise InvalidType(f"{name} must be a list of traces; got one {type(traces).__name__}.")
    for number, trace in enumerate(traces):
        _require_trace(f"{name}[{number}]", trace, schema, any_size)
        yield trace


def _require_trace(name: str, trace: Trace, schema: Schema, any_size: bool) -> None:
    if not isinstance(trace, Trace):
        raise InvalidType(f"{name} must be a Trace; got {type(trace).__name__}.")
    own = trace.schema
    if list(own.blocks) != list(schema.blocks):
        raise InvalidInput(
            f"{name} has the attributes {', '.join(own.blocks)}; the schema has "
            f"{', '.join(schema.blocks)}."
        )
    if not any_size and own.atoms != schema.atoms:
        raise InvalidInput(
            f"{name} is of another size: its tokens have {own.n_dims} numbers, those of the "
            f"schema {schema.n_dims}. Rules are learned from several sizes, and resized."
        )
    for part in ("prompt", "completion"):
        _require_tokens(f"{name}.{part}", getattr(trace, part), own.n_dims)
    # Products G[j, k] x[l] of counts, of at most n m^3, must be numbers that float64 holds.
    tokens = (trace.prompt, trace.completion)
    n_tokens = sum(map(len, tokens))
    most = max(int(abs(end)) for part in tokens for end in (part.min(), part.max()))
    if n_tokens * most**3 > EXACT_INTEGER:
        raise InvalidInput(
            f"{name} has {n_tokens} tokens that hold values up to {most} times; learning sums "
            f"products of three such numbers, and {n_tokens} * {most}^3 must not exceed 2^53. Use "
            "traces of smaller counts."
        )
    if trace.labels is not None:
        _require_labels(f"{name}.labels", trace.labels, trace.completion.shape)


def _require_tokens(name: str, tokens: Any, n_dims: int) -> None:
    """An array (n, d) of whole numbers: proofs rest on that."""
    _require_real(name, tokens, "an array of whole numbers, as schema.encode(tokens) gives it")
    if tokens.ndim != 2 or not len(tokens) or tokens.shape[1] != n_dims:
        raise InvalidInput(
            f"{name} must have shape (n, {n_dims}) with at least one token; got {tokens.shape}."
        )
    if not np.all(np.isfinite(tokens) & (tokens == np.rint(tokens))):
        raise InvalidInput(f"{name} must hold whole numbers; got others.")


def _require_labels(name: str, labels: Any, shape: tuple[int, ...]) -> None:
    _require_real(name, labels, "an array of real numbers")
    if labels.shape != shape:
        raise InvalidInput(f"{name} must have the completion's shape {shape}; got {labels.shape}.")
    if not np.all(np.abs(labels) < LARGEST):
        raise InvalidInput(f"{name} must be finite, and below {LARGEST:g} in size; got others.")


def _require_real(name: str, given: Any, wanted: str) -> None:
    if not isinstance(given, np.ndarray) or given.dtype.kind not in "iuf":
        of = f" of {given.dtype}" if isinstance(given, np.ndarray) else ""
        raise InvalidType(f"{name} must be {wanted}; got {type(given).__name__}{of}.")


# The columns of the table of traces in a file.
SCHEMA, PROMPT, COMPLETION, CUT, LABELLED = range(5)


def plain_traces(traces: Sequence[Trace]) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """Named arrays and plain data that hold traces.

    ``trace_table`` (M, 5) has for each trace the number of its schema, how many tokens its prompt
    and its completion have, whether it was cut off, and whether it has labels; ``trace_tokens_s``
    and ``trace_labels_s`` are the tokens and the labels of all traces of schema s, in order.
    """
    schemas: list[Schema] = []
    table, parts = [], defaultdict[tuple[str, int], list[NDArray]](list)
    for trace in traces:
        own = trace.schema
        same = (each is own or (each == own and each.encoding == own.encoding) for each in schemas)
        number = next((i for i, is_same in enumerate(same) if is_same), len(schemas))
        if number == len(schemas):
            schemas.append(own)
        labelled = trace.labels is not None
        table.append((number, len(trace.prompt), trace.n_rows, trace.cut, labelled))
        parts["tokens", number].append(trace.tokens.astype(np.int64))
        if trace.labels is not None:
            parts["labels", number].append(trace.labels.astype(np.float64))
    arrays = {"trace_table": np.array(table, dtype=np.int64)}
    for kind, number in sorted(parts, key=lambda part: (part[0] == "labels", part[1])):
        arrays[f"trace_{kind}_{number}"] = np.concatenate(parts[kind, number])
    return arrays, {"schemas": [plain_schema(each) for each in schemas]}


def traces_from(
    arrays: dict[str, NDArray], plain: dict[str, Any], schema: Schema, any_size: bool
) -> tuple[list[Trace], dict[str, NDArray]]:
    """The inverse of ``plain_traces``: traces that are fit to learn from, and other arrays."""
    entries({"schemas": listed(any_object, least=1)})(plain, "metadata.traces")
    schemas = [schema_from(each) for each in plain["schemas"]]
    table: Any = arrays.get("trace_table")
    array((None, 5), dtype="int64")(table, "arrays.trace_table")
    fits = len(table) > 0 and bool(table.min() >= 0)
    require(fits, "arrays.trace_table", "of at least one trace, without negative sizes", table)
    known = bool(table[:, SCHEMA].max() < len(schemas))
    require(known, "arrays.trace_table", f"of schemas below {len(schemas)}", table[:, SCHEMA].max())
    flags = bool(table[:, CUT:].max() <= 1)
    require(flags, "arrays.trace_table", "0 or 1 in its last columns", table[:, CUT:].max())
    checks = {"trace_table": array((None, 5), dtype="int64")}
    for number, own in enumerate(schemas):
        some = table[table[:, SCHEMA] == number]
        # As Python integers: those of a file may overflow when they are added.
        n_tokens = sum(some[:, PROMPT].tolist()) + sum(some[:, COMPLETION].tolist())
        checks[f"trace_tokens_{number}"] = array((n_tokens, own.n_dims), dtype="int64")
        n_labels = sum(some[some[:, LABELLED] == 1, COMPLETION].tolist())
        if n_labels:
            checks[f"trace_labels_{number}"] = array((n_labels, own.n_dims))
    others = {name: each for name, each in arrays.items() if not name.startswith("trace_")}
    entries(checks)({name: each for name, each in arrays.items() if name not in others}, "arrays")
    starts = defaultdict[str, int](int)

    def taken(name: str, n_rows: int) -> NDArray:
        """So many further rows of an array."""
        starts[name] += n_rows
        return arrays[name][starts[name] - n_rows : starts[name]]

    found = []
    for number, n_prompt, n_rows, cut, labelled in table.tolist():
        prompt, completion = (taken(f"trace_tokens_{number}", n) for n in (n_prompt, n_rows))
        labels = taken(f"trace_labels_{number}", n_rows) if labelled and n_rows else None
        found.append(Trace(schemas[number], prompt, completion, labels=labels, cut=bool(cut)))
    return list(require_traces("traces", found, schema, any_size)), others
