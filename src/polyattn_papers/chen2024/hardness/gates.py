"""What must hold, in either profile."""

from __future__ import annotations

import numpy as np

from polyattn_papers.chen2024.hardness.cells import SAME_PARITY
from polyattn_papers.chen2024.hardness.findings import group_of
from polyattn_papers.reproduction.experiment import Gate, Row
from polyattn_papers.reproduction.rows import where
from polyattn_papers.tasks.softmax_truth import (
    PARITY,
    SAME_FUNCTION,
    no_wrong_claim,
    worst_error,
)

# Families of three heads are gated at this size of the logits.
GATED_LOGITS, GATED_HEADS, EXACT = 4.0, 3, 1e-6

# Other heads of the same parity have its outputs up to rounding, and are this far apart at least.
SAME_ROUNDING, LEAST_APART = 1e-12, 0.1


def gates(rows: list[Row]) -> list[Gate]:
    """Families come back; nobody is wrong without saying so; parity is called what it is."""
    return [
        _families_recovered(rows),
        no_wrong_claim(rows),
        _functions_right(rows),
        _parities_not_claimed(rows),
        _other_heads(rows),
    ]


def _families_recovered(rows: list[Row]) -> Gate:
    gated = (False, GATED_HEADS, GATED_LOGITS)
    own = [row for row in where(rows, method="auto") if group_of(row) == gated]
    errors = [worst_error(row) for row in own]
    back = sum(row["claimed"] and error <= EXACT for row, error in zip(own, errors, strict=True))
    return Gate(
        f"every hard family of {GATED_HEADS} heads at logits {GATED_LOGITS:g} is recovered",
        bool(own) and back == len(own),
        f"{back} of {len(own)} to {EXACT:.0e}, largest error {max(errors, default=np.inf):.1e}",
    )


def _functions_right(rows: list[Row]) -> Gate:
    own = [row for row in rows if row["outcome"] in ("recovered", "ambiguous")]
    errors = [np.inf if row["function_error"] is None else row["function_error"] for row in own]
    return Gate(
        'what is called recovered or "ambiguous" is the planted function',
        bool(own) and max(errors) <= SAME_FUNCTION,
        f"largest error {max(errors, default=np.inf):.1e} of {len(own)} runs",
    )


def _parities_not_claimed(rows: list[Row]) -> Gate:
    parities = where(rows, family=PARITY, method="auto")
    several = [row for row in parities if row["n_heads"] > 1]
    solved = [row for row in several if row["solved"]]
    ambiguous = sum(row["outcome"] == "ambiguous" for row in solved)
    claimed = sum(row["claimed"] for row in several)
    return Gate(
        "from Boolean tokens, heads of a parity of several bits are never called recovered",
        bool(several) and not claimed,
        f"{claimed} of {len(several)}; of {len(solved)} solved, {ambiguous} are called ambiguous",
    )


def _other_heads(rows: list[Row]) -> Gate:
    own = where(rows, method=SAME_PARITY)
    apart = min((row["attn_error"] for row in own), default=0.0)
    alike = max((row["function_error"] for row in own), default=np.inf)
    return Gate(
        "and rightly so: other heads compute the same parity",
        apart >= LEAST_APART and alike <= SAME_ROUNDING,
        f"layers: {len(own)}; heads off by {apart:.2g} or more, outputs by {alike:.0e} at most",
    )
