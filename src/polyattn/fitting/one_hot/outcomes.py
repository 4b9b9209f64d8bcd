"""What is to be said of a fit of one-hot tokens."""

from __future__ import annotations

from collections.abc import Sequence

from polyattn.fitting.outcomes import BLURRED, FIT_OUTCOMES, FitName
from polyattn.form.layout import Layout
from polyattn.model.symbol_table import SymbolTable
from polyattn.outcome import Outcome
from polyattn.quoting import counted
from polyattn.solve.solution import SEEN_ROUNDING, SMALL_RIDGE
from polyattn.solve.symbol_groups import GroupSolution

UNSEEN = (
    "Predictions are determined on sequences of one-hot tokens whose pairs of symbols all occur in "
    "the data; a pair that does not has coefficient 0."
)
CHOICE = (
    "Predictions on other sequences depend on that choice: add data, or set ridge > 0. "
    "pa.certify says which pairs of symbols are determined."
)


def describe_symbols(
    solutions: Sequence[GroupSolution],
    table: SymbolTable,
    layout: Layout,
    ridge: float,
    rank: int | None,
    condition: float,
) -> Outcome[FitName]:
    """The outcome of the solutions of all symbols that ask."""
    notes = " ".join(sorted({each.note.strip() for each in solutions if each.note}))
    note = f" {notes}" if notes else ""
    reached = all(each.is_reached for each in solutions)
    occur = (
        f"{table.n_pairs:,} of {counted(table.n_symbols**2, 'pair')} of symbols (one that asks, "
        f"one attended to) {'occurs' if table.n_pairs == 1 else 'occur'} in the data"
    )
    if ridge > 0:
        blurred = condition >= BLURRED
        doubt = " Its condition number is beyond float64: coefficients may be wrong." * blurred
        uncertain = max(each.uncertain for each in solutions)
        if uncertain > SEEN_ROUNDING:
            reached, doubt = False, SMALL_RIDGE.format(uncertain) + doubt
        verb = "found" if reached else "approached"
        return FIT_OUTCOMES(
            "regularised",
            f"The unique minimiser of squared error + {ridge:.3g} ||T||^2 was {verb}: {occur}, and "
            f"all other coefficients are 0.{note}{doubt}",
            "Smaller ridge follows the data more closely.",
            doubtful=blurred or not reached,
        )
    if rank is None:
        return FIT_OUTCOMES(
            "iterative", f"A global optimum was approached iteratively: {occur}.{note}",
            "Whether it is unique was not examined; pa.certify can decide it.", doubtful=True,
        )  # fmt: skip
    if rank == layout.n_features:
        return FIT_OUTCOMES(
            "unique",
            "The unique global optimum over any number of heads was found: the data determine "
            f"{'its coefficient' if rank == 1 else f'all {rank} coefficients'} (condition number "
            f"about {condition:.1e}).{note}",
        )
    if rank == table.n_pairs:
        return FIT_OUTCOMES(
            "minimum_norm",
            f"A global optimum was found, but it is not unique: {occur}. The data determine the "
            f"coefficients of all these (condition number about {condition:.1e}). Of all optima "
            f"the one of smallest norm was chosen.{note}",
            UNSEEN,
        )
    return FIT_OUTCOMES(
        "minimum_norm",
        f"A global optimum was found, but it is not unique: {occur}, and their counts have rank "
        f"{rank:,}. Of all optima the one of smallest norm was chosen.{note}",
        CHOICE,
    )
