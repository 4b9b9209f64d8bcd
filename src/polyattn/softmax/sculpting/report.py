"""What each phase measured, as a ``Phase`` with a sentence and plain figures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

from polyattn.softmax.recorder import Phase
from polyattn.softmax.sculpting.alternate import Again
from polyattn.softmax.sculpting.carve import Carved
from polyattn.softmax.sculpting.crude import CrudeSum
from polyattn.softmax.sculpting.search import Searched
from polyattn.softmax.sculpting.sharpen import SharpSum
from polyattn.softmax.sculpting.span import Span

Outcome = TypeVar("Outcome")
Description = tuple[str, str, dict[str, Any]]


class Log:
    """Phases in order; the time of each is what passed since the one before."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self._last = time.perf_counter()

    def timed(self, describe: Callable[[Outcome], Description], outcome: Outcome) -> Outcome:
        """Note an outcome that has just been computed, and hand it on."""
        now = time.perf_counter()
        name, sentence, figures = describe(outcome)
        self.phases.append(Phase(name, sentence, figures, now - self._last))
        self._last = time.perf_counter()
        return outcome


def crude(found: CrudeSum) -> Description:
    """Phase 1."""
    return (
        "crude sum",
        (
            f"the mean token explains {found.carried:.0%} of the squared outputs; terms of "
            f"first order, taken out, were {found.turned:.0%} of the sum."
        ),
        {"S": found.S.tolist(), "carried": found.carried, "turned": found.turned},
    )


def carved(found: Carved) -> Description:
    """Phase 2."""
    return (
        "sculpt",
        (
            f"{found.n_certified} of {found.n_usable} rows with a pattern are certified, "
            f"{found.n_kept} agree with the centre; {len(found.body)} constraints, "
            f"median slack {found.slack:.2g}."
        ),
        _of_carved(found),
    )


def sharp(found: SharpSum) -> Description:
    """Phase 3."""
    return (
        "minimum norm",
        (
            f"the point of least norm {found.norm:.3g} lies {found.apart:.0%} from the centre; "
            f"S comes from {found.found.n_rows} rows at the {found.anchor}, "
            f"{found.n_one_hot} rows are one-hot."
        ),
        {
            "S": found.found.S.tolist(),
            "norm": _plain(found.norm),
            "apart": found.apart,
            "anchor": found.anchor,
            "margins": list(found.margins),
            "rows": found.found.n_rows,
            "residual": found.found.residual,
            "one_hot_rows": found.n_one_hot,
            "one_hot_differs": _plain(found.one_hot_differs),
        },
    )


def again(found: Again) -> Description:
    """Phase 4."""
    return (
        "sculpt again",
        (
            f"{len(found.moved)} rounds, the last moved S by {(found.moved or (0.0,))[-1]:.1e}; "
            f"{found.carved.n_kept} rows in K*, median slack {found.carved.slack:.2g}."
        ),
        {**_of_carved(found.carved), "S": found.S.tolist(), "moved": list(found.moved)},
    )


def span(found: Span) -> Description:
    """Phase 5."""
    return (
        "span",
        (
            f"{len(found.directions)} directions; eigenvalues jump by {found.gap:.2g}, "
            f"widths of K* by {found.width_gap:.2g}; its own directions agree to a cosine of "
            f"{found.agreement:.3f}."
        ),
        {
            "dimension": len(found.directions),
            "directions": found.directions.tolist(),
            "eigenvalues": list(found.eigenvalues),
            "gap": found.gap,
            "widths": [_plain(width) for width in found.widths],
            "typical_width": _plain(found.typical_width),
            "width_gap": found.width_gap,
            "agreement": found.agreement,
        },
    )


def searched(found: Searched) -> Description:
    """Phase 6."""
    return (
        "search",
        (
            f"{found.n_candidates} points of the net and {found.n_starts} descents; held-out error "
            f"{found.validated:.2g} in the span."
        ),
        {
            "candidates": found.n_candidates,
            "starts": found.n_starts,
            "best_of_net": found.best_of_net,
            "fitted": found.fitted,
            "validated": found.validated,
        },
    )


def _of_carved(found: Carved) -> dict[str, Any]:
    low, middle, high = (_plain(value) for value in found.residuals)
    return {
        "usable": found.n_usable,
        "certified": found.n_certified,
        "kept": found.n_kept,
        "constraints": len(found.body),
        "residuals": [low, middle, high],
        "slack": found.slack,
        "needed": found.needed,
        "centre": found.centre.tolist(),
    }


def _plain(value: float) -> float | None:
    """JSON has no inf and no nan."""
    return value if math.isfinite(value) else None
