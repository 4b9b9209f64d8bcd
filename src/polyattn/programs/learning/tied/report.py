"""What learning found, in a sentence that claims no more than was checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.outcome import Outcome
from polyattn.programs.learning.tied.facts import strides_of
from polyattn.programs.learning.tied.folds import Selection
from polyattn.programs.learning.tied.layout import Layout
from polyattn.programs.traces import Trace

# The one outcome that claims success.
LEARNED = "learned"

# Fewer traces agree too easily.
FEWEST_FOLDS = 3

# With so large a share of the held-out tokens wrong, rules explain nothing worth reporting.
MOSTLY_WRONG = 0.5


@dataclass(frozen=True)
class Mismatch:
    """A held-out token that was predicted wrongly: which trace, token and attribute."""

    trace: int
    token: int
    attribute: str

    def __str__(self) -> str:
        return f"trace {self.trace}, token {self.token}, attribute {self.attribute!r}"


@dataclass(frozen=True)
class Findings:
    """All that was checked.

    n_folds : how many times the rules were learned without a part of the traces
    n_agreeing : how many of these times they were the same rules as on all traces
    n_tokens : predicted held-out tokens
    mismatches : those that were wrong, with each attribute that was
    gaps : what the rules say and no trace has tested
    rivals : rules that fit as well and would go on differently, in words
    """

    n_traces: int
    n_folds: int
    n_agreeing: int
    n_tokens: int
    mismatches: tuple[Mismatch, ...]
    gaps: tuple[str, ...]
    rivals: tuple[str, ...] = ()

    @property
    def n_wrong(self) -> int:
        """Held-out tokens with at least one wrong attribute."""
        return len({(each.trace, each.token) for each in self.mismatches})

    @property
    def outcome(self) -> Outcome:
        """The findings in words; only ``learned`` is a success."""
        stable = self.n_agreeing == self.n_folds
        if self.n_folds < FEWEST_FOLDS:
            return Outcome(
                "unchecked",
                f"Fewer than {FEWEST_FOLDS} traces cannot check what was learned from the others.",
                "Give more traces.",
            )
        if not self.mismatches:
            return self._without_mismatches(stable)
        share, first = self.n_wrong / self.n_tokens, self.mismatches[0]
        if stable and share < MOSTLY_WRONG:
            return Outcome(
                "noisy",
                f"All {self.n_folds} folds found the same rules, which disagree with "
                f"{share:.1%} of the held-out tokens, first {first}: labels are wrong, or rules "
                "of this schema cannot say all.",
                "If the labels are clean, add an attribute that the step needs, or more traces.",
            )
        return Outcome(
            "unexplained",
            f"{self.n_wrong} of {self.n_tokens} held-out tokens were predicted wrongly, "
            f"first {first}; {self.n_agreeing} of {self.n_folds} folds found the same rules.",
            "Give more traces, of more machines and of mixed lengths; if that does not help, the "
            "schema lacks what the step needs.",
        )

    def _without_mismatches(self, stable: bool) -> Outcome:
        if not stable:
            return Outcome(
                "ambiguous",
                "Every held-out token was predicted, but "
                f"{self.n_folds - self.n_agreeing} of {self.n_folds} folds found other rules.",
                "Give more traces: they tell the rules apart.",
            )
        if self.rivals:
            return Outcome(
                "ambiguous",
                "Every held-out token was predicted, but other rules fit as well and would go on "
                f"differently: {'; '.join(self.rivals)}.",
                "Give more traces, or longer ones: they tell the rules apart.",
            )
        if self.gaps:
            return Outcome(
                "untested",
                "Every held-out token was predicted, but the rules say more than the traces "
                f"show: {'; '.join(self.gaps)}.",
                "Give traces in which that happens.",
            )
        return Outcome(
            LEARNED,
            f"Every token of all {self.n_traces} traces was predicted exactly by rules learned "
            f"without that trace, and all {self.n_folds} folds found the same rules.",
            "",
        )


def mismatches_of(
    traces: Sequence[Trace],
    labels: Sequence[NDArray] | None,
    layout: Layout,
    selections: dict[int, Selection],
) -> tuple[Mismatch, ...]:
    """Where rounded held-out predictions differ from the wanted tokens."""
    found, start = [], 0
    for number, trace in enumerate(traces):
        outputs = _outputs(trace, layout, selections, start)
        wanted = trace.completion if labels is None else np.asarray(labels[number], dtype=float)
        wrong = trace.schema.round(outputs) != trace.schema.round(wanted)
        for name, block in trace.schema.blocks.items():
            at = np.flatnonzero(wrong[:, block].any(axis=1)).tolist()
            found += [Mismatch(number, token, name) for token in at]
        start += trace.n_rows
    return tuple(sorted(found, key=lambda each: (each.trace, each.token)))


def _outputs(
    trace: Trace, layout: Layout, selections: dict[int, Selection], start: int
) -> NDArray[np.float64]:
    """The held-out predictions of one trace, in its own coordinates (m, d)."""
    coordinates = layout.coordinates(trace.schema)
    outputs = np.zeros(trace.completion.shape)
    for kind, selection in selections.items():
        at = np.flatnonzero(coordinates.kinds == kind)
        steps = np.array(strides_of(layout, kind), dtype=np.int64)
        places = coordinates.parts[at, : len(steps)] @ steps
        held_out = selection.held_out.reshape(-1, selection.dictionary.n_places)
        outputs[:, at] = held_out[start : start + trace.n_rows][:, places]
    return outputs
