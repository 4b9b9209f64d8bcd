"""The data behind a fit, when they are asked for again: kept if small, or given again and checked.

A result keeps a reference to small data, so that questions about them need no second argument.
Large data and sources are not kept: a result that is kept for long must not hold gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, OutOfRange
from polyattn.fitting.generalisation import Generalisation, generalisation_of
from polyattn.form.layout import Layout
from polyattn.numerics.scaling import as_risk
from polyattn.quoting import readable_bytes
from polyattn.solve.planning import memory_limit
from polyattn.solve.sequence_influence import Influence, influence_of
from polyattn.stats.parts import is_read
from polyattn.stats.rows import Rows

# Tokens and targets of up to so many bytes are kept with a result, by reference where they can be.
KEPT_BYTES = 1 << 26

# Risks of the same coefficients on the same data agree to so many digits, and beside the targets.
SAME_RISK, SAME_POWER = 1e-6, 1e-12


def kept_rows(source: object) -> Rows | None:
    """The rows that a result keeps, without summaries; None of large data, sources and sums."""
    if not isinstance(source, Rows) or is_read(source.batch):
        return None
    arrays = [source.batch.values, source.targets]
    if source.context is not None:
        arrays.append(source.context.values)
    return replace(source) if sum(each.nbytes for each in arrays) <= KEPT_BYTES else None


def generalise(
    rows: Rows, coef: NDArray, layout: Layout, risk: float, confidence: float, n_decays: int
) -> Generalisation:
    """How coefficients (e, m, r) that were fitted to these rows do on fresh sequences.

    risk : theirs on these rows, by which data that were not fitted are found out
    n_decays : how many were tried, where the data chose the decay
    """
    merged = without_copies(rows)
    weights = merged.sequence_weights
    positive = np.ones(len(rows.batch), bool) if weights is None else weights > 0
    n_sequences = int(np.count_nonzero(positive))
    exponent = rows.target_exponent or 0
    found = _influence(merged, coef, layout)
    if found is not None:
        total = rows.total_weight
        _require_same(as_risk(float(found.own.sum()) / total, exponent), risk, rows)
        columns = {name: each[positive] for name, each in vars(found).items() if np.ndim(each)}
        found = replace(found, **columns)
    units = (rows.total_weight, exponent)
    return generalisation_of(found, confidence, n_sequences, *units, n_decays)


def _influence(rows: Rows, coef: NDArray, layout: Layout) -> Influence | None:
    """None where sequences are fewer than features, and these too many to look at."""
    needed = 8 * (rows.n_outputs + 4) * rows.n_features**2
    if needed > memory_limit():
        if rows.n_sequences <= rows.n_features:
            return None
        raise OutOfRange(
            f"generalisation takes about {readable_bytes(needed)} for {rows.n_features:,} features "
            f"and {rows.n_outputs} outputs, more than half of the memory; risks on sequences that "
            "were held out say the same."
        )
    token, target = rows.token_exponent or 0, rows.target_exponent or 0
    theta = layout.as_theta(np.ldexp(coef, 3 * token - target))
    return influence_of(rows, theta)


def _require_same(found: float, risk: float, rows: Rows) -> None:
    """Refuse data on which the coefficients have another risk than on those that were fitted."""
    power = float(np.sum(rows.output_sizes**2))
    if abs(found - risk) > SAME_RISK * risk + SAME_POWER * power:
        raise InvalidInput(
            f"generalisation is about the data that were fitted, on which the risk is {risk:.6g}; "
            f"on these it is {found:.6g}. Give X and Y (sample_weight, context) as they were given "
            "to fit, and unchanged since."
        )


def without_copies(rows: Rows) -> Rows:
    """The same rows; of sequences with equal tokens and targets one carries the weight of all.

    Copies say nothing new about the population.  Where sequences and targets are few and discrete,
    equal ones may be independent draws: then this is on the safe side.
    """
    first: dict[bytes, int] = {}
    copies: dict[int, int] = {}
    for number, digest in enumerate(_digests(rows)):
        if first.setdefault(digest, number) != number:
            copies[number] = first[digest]
    if not copies:
        return rows
    given = rows.sequence_weights
    weights = np.ones(len(rows.batch)) if given is None else given.copy()
    for number, original in copies.items():
        weights[original] += weights[number]
        weights[number] = 0.0
    return replace(rows, sequence_weights=weights)


def _digests(rows: Rows) -> Iterator[bytes]:
    """One for each sequence: of its tokens, its targets and what it attends to."""
    for part in rows.parts:
        borders = part.borders
        for number in range(len(part.batch)):
            targets = part.targets[int(borders[number]) : int(borders[number + 1])]
            arrays = [part.batch[number], targets]
            if part.context is not None:
                arrays.append(part.context[number])
            digest = blake2b(digest_size=16)
            for each in arrays:
                # Minus zero is zero.
                plain = np.ascontiguousarray(np.asarray(each, dtype=np.float64) + 0.0)
                digest.update(str(plain.shape).encode())
                digest.update(plain.tobytes())
            yield digest.digest()
