"""fit of a source: from sums of one pass where they suffice, else from rows that are read again.

Sums are of size p x p.  The normal equations that they give lose twice the digits of the condition
number, and rows bring them back in one more pass: where few would be lost, that pass is saved.
"""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import Any

from polyattn.errors import InvalidInput
from polyattn.form.form import Form
from polyattn.form.layout import Layout
from polyattn.quoting import readable_bytes
from polyattn.solve.planning import ITERATED_FEATURES, memory_limit, size_of
from polyattn.solve.primal import solve_primal
from polyattn.solve.solution import Solution
from polyattn.solve.solvers import SOLVERS
from polyattn.sources.source import Source
from polyattn.stats import Moments
from polyattn.stats.of_source import moments_of_source
from polyattn.stats.opening import rows_of_source
from polyattn.stats.rows import Rows

# Up to this condition number coefficients of sums alone are right to ten digits or so.
SAFE_CONDITION = 1e3

# A residual below this share of the targets is a difference that lost half of its digits.
SAFE_RESIDUAL = 1e-8


def basis_of_source(
    source: Source,
    form: Form,
    solver: str,
    penalty: float | str,
    loss: str,
    checkpoint: str | PathLike[str] | None,
    client: Any,
) -> Moments | Rows:
    """What a fit begins with: sums of one pass, or rows."""
    if not source.n_outputs:
        raise InvalidInput("the source holds no targets Y, which fit needs.")
    if client is not None and loss != "squared":
        raise InvalidInput(
            f"workers of a client make sums and passes for the squared error; loss={loss!r} is "
            "computed in one process: leave out client."
        )
    sums = _sums_of_source(source, form, solver, penalty, loss, checkpoint, client)
    if sums is not None:
        return sums
    return rows_of_source(source, with_fixed_decay(form), None, client)


def with_fixed_decay(form: Form) -> Form:
    """The form with which rows begin whose decay the data choose."""
    return replace(form, decay=1.0) if form.decay == "loo" else form


def solve_sums(
    source: Source, moments: Moments, ridge: float, client: Any = None
) -> tuple[Solution, Moments | Rows] | None:
    """The solution from sums, or from both sums and rows; None where there are too few rows.

    With it, what it was found from.
    """
    if moments.n_positive < moments.n_features:
        return None
    solution = solve_primal(moments, ridge)
    if _is_safe(solution, moments):
        return solution, moments
    rows = rows_of_source(source, moments.form, None, client)
    return solve_primal(rows, ridge, moments), rows


def _sums_of_source(
    source: Source,
    form: Form,
    solver: str,
    penalty: float | str,
    loss: str,
    checkpoint: str | PathLike[str] | None,
    client: Any,
) -> Moments | None:
    """The moments, where a fit of these rows would make them; None where it needs the rows.

    Rules that leave sequences out, log-loss and other solvers need the rows; so do wide tokens,
    unless a checkpoint asks for sums.
    """
    reason = _needs_rows(form, solver, penalty, loss)
    layout = Layout.of(form, source.n_dims, source.n_context_dims) if reason is None else None
    if layout is not None:
        p = layout.n_features
        # Sums are of the same size for any number of rows.
        needed = SOLVERS["primal"].numbers(size_of(layout, 0, source.n_outputs_in(form.mode)))
        if 8 * needed > memory_limit():
            reason = f"sums of {p} features would take {readable_bytes(8 * needed)}"
        elif p >= ITERATED_FEATURES and checkpoint is None:
            reason = "a faster solver may be taken"
    if reason is None:
        return moments_of_source(source, form, True, checkpoint, client)
    if checkpoint is not None:
        raise InvalidInput(
            f"a checkpoint keeps sums, and here none are made: {reason}. Leave it out."
        )
    return None


def _is_safe(solution: Solution, moments: Moments) -> bool:
    """Whether a pass over the rows would add no digits that count."""
    whole = solution.rank in (None, moments.n_features) and solution.structure is None
    power = moments.scaled_target_power()
    return (
        whole
        and solution.condition <= SAFE_CONDITION
        and (power == 0.0 or solution.residual_power >= SAFE_RESIDUAL * power)
    )


def _needs_rows(form: Form, solver: str, penalty: float | str, loss: str) -> str | None:
    """Why sums are not enough for such a fit, in words; None where they may be."""
    if loss != "squared":
        return f"loss={loss!r} is no function of them"
    if form.decay == "loo":
        return "decay='loo' leaves out sequences"
    if isinstance(penalty, str):
        return f"ridge={penalty!r} chooses it from the sequences"
    return None if solver in ("auto", "primal") else f"solver={solver!r} does without"
