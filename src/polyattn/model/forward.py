"""Forward passes of linear layers of every form, in linear time and at every size of tokens.

The outputs are sums of parts: the heads, a linear map of the query (``skip``), and a constant.
Each part is computed of order one; the powers of two that were taken out of tokens, context and
parameters come back when all parts are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import OutOfRange
from polyattn.features.products import apply_coef
from polyattn.features.summaries import SeenSequences
from polyattn.form.columns import Columns
from polyattn.form.layout import Layout
from polyattn.model.layer import MOST_SPREAD, far_apart, ordinary_exponent, require_products
from polyattn.numerics import scaling
from polyattn.numerics.arrays import even_ranges
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.progress import report
from polyattn.sequences import SequenceBatch

# Numbers and the power of two that was taken out of them.
Part = tuple[NDArray[np.float64], int]

# Queries that are read together.
QUERY_BLOCK = 1 << 14


@single_threaded_blas()
def coef_forward(
    batch: SequenceBatch,
    coef: NDArray,
    layout: Layout,
    context: SequenceBatch | None = None,
    exponent: int = 0,
) -> NDArray[np.float64]:
    """Outputs (n_rows, e) from folded coefficients (e, m, r).  Cost: 2 e m r flops per row.

    The outputs are multiplied by 2**exponent, together with what was taken out of the tokens:
    each alone may leave the range of float64 where both together do not.
    """
    products, skip, intercept = coef_parts(layout, coef)
    seen = ordinary_sequences(layout, batch, context, far_apart([products], 3))
    parts = [by_coef(seen, products), *linear_parts(seen, skip, intercept)]
    return added([(part, power + exponent) for part, power in parts])


def coef_parts(layout: Layout, coef: NDArray) -> tuple[NDArray, NDArray | None, NDArray | None]:
    """The coefficients of products (e, n_products, r), ``skip`` (r, e) and ``intercept`` (e,)."""
    form, n_products, n_queries = layout.form, layout.n_products, len(layout.query)
    skip = coef[:, n_products, :n_queries].T if form.skip else None
    return coef[:, :n_products, :n_queries], skip, coef[:, -1, -1] if form.intercept else None


def ordinary_sequences(
    layout: Layout, batch: SequenceBatch, context: SequenceBatch | None, parameters_apart: bool
) -> SeenSequences:
    """Sequences as the heads see them, of order one: powers of two are taken out of them.

    Without the constants of ``skip`` and ``intercept``, which are parts of their own.  Refused
    where products underflow that count: see ``ordinary_exponent``.
    parameters_apart : whether the numbers that multiply them are ``far_apart``
    """
    form = layout.form
    if form.skip or form.intercept:
        heads = replace(form, skip=False, intercept=False)
        layout = Layout.of(heads, layout.n_dims, layout.n_context_dims)
    if layout.is_plain:
        exponent = ordinary_exponent(batch, form.bias, parameters_apart)
        return SeenSequences(layout, batch, None, exponent)
    of_queries = _sizes(layout.columns, batch, ("query",), parameters_apart)
    attended = batch if context is None else context
    of_pairs = _sizes(layout.pair_columns, attended, ("key", "value"), parameters_apart)
    if context is None:
        return SeenSequences(layout, batch, None, _balanced(of_queries + of_pairs))
    return SeenSequences(layout, batch, context, _balanced(of_queries), _balanced(of_pairs))


def by_coef(seen: SeenSequences, coef: NDArray) -> Part:
    """Outputs (n_rows, e) of coefficients of products (e, n_products, r)."""
    outputs = np.empty((seen.batch.n_rows(seen.layout.form.mode), len(coef)))
    for block in seen.blocks():
        outputs[block.first : block.stop] = apply_coef(coef, block.sums, block.queries).T
        report(block.stop, len(outputs))
    return outputs, degree_three(seen)


def degree_three(seen: SeenSequences) -> int:
    """The power of two that products of a query, a key and a value are divided by."""
    return seen.tokens.exponent + 2 * seen.attended.exponent


def linear_parts(
    seen: SeenSequences, skip: NDArray | None, intercept: NDArray | None
) -> list[Part]:
    """What ``skip`` (r, e) and ``intercept`` (e,) add to the outputs."""
    parts: list[Part] = []
    if skip is not None:
        power = scaling.exponent_for(scaling.largest_magnitude(skip)) or 0
        rows = _query_rows(seen)
        outputs, matrix = np.empty((len(rows), skip.shape[1])), scaling.scaled(skip, -power)
        for first, stop in even_ranges(len(rows), QUERY_BLOCK):
            outputs[first:stop] = seen.queries(rows[first:stop]).T @ matrix
        parts.append((outputs, power + seen.tokens.exponent))
    if intercept is not None:
        parts.append((intercept, 0))
    return parts


def added(parts: Sequence[Part]) -> NDArray[np.float64]:
    """The sum of all parts, in true units; refused where float64 cannot hold it."""
    if len(parts) == 1:
        return scaling.restored(*parts[0], "outputs")
    powers = [power for _, power in parts]
    if any(powers):
        # In units of the largest part: what then vanishes counts for nothing.
        tops = [
            int(np.frexp(largest)[1]) + power
            for part, power in parts
            if (largest := scaling.largest_magnitude(part))
        ]
        top = max(tops, default=0)
        with np.errstate(under="ignore"):
            total = sum(np.ldexp(part, power - top) for part, power in parts)
        return scaling.restored(np.asarray(total), top, "outputs")
    return np.asarray(sum(part for part, _ in parts))


def _query_rows(seen: SeenSequences) -> NDArray[np.int64]:
    """Which tokens are asked about."""
    if seen.layout.form.mode == "last":
        return seen.batch.offsets[1:] - 1
    return np.arange(len(seen.batch.values))


def _sizes(
    columns: Columns, batch: SequenceBatch, roles: tuple[str, ...], parameters_apart: bool
) -> list[int | None]:
    """Exponents of the largest numbers in each role; None for nothing but zeros."""
    sizes = columns.sizes(batch)
    exponents: list[int | None] = []
    for role in roles:
        own = sizes[columns.places(role)]
        if parameters_apart:
            require_products(own, 3)
        exponents.append(int(np.frexp(own.max())[1]) if np.any(own) else None)
    return exponents


def _balanced(exponents: list[int | None]) -> int:
    """One power of two to divide all roles by, after which their products are of order one."""
    known = [each for each in exponents if each is not None]
    if len(known) < len(exponents):
        # Products with zeros are zero, as long as the others do not overflow before.
        return max(0, max(known, default=0) - MOST_SPREAD // 3)
    if max(map(abs, known)) <= scaling.ORDINARY_EXPONENT:
        return 0
    mean = round(sum(known) / len(known))
    between = max(known) - min(known)
    if between > MOST_SPREAD / 2:
        raise OutOfRange(
            f"queries, keys and values differ in size by a factor of about 2**{between}; their "
            "products do not fit float64. Give tokens whose coordinates are of similar size."
        )
    return mean
