"""The paper's method for softmax heads: six phases, each with its figures [chen2024].

The paper assumes non-degeneracy of the data; here every assumption is a number that is compared
with what is needed, so that a failure has a name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from polyattn.display import plain
from polyattn.errors import InvalidInput, require_integer
from polyattn.softmax.examples import Examples, Matrix
from polyattn.softmax.recorder import Note, Recorder
from polyattn.softmax.sculpting.body import ConvexBody
from polyattn.softmax.sculpting.calibrate import Calibration, calibrate
from polyattn.softmax.sculpting.carve import Carved, carve
from polyattn.softmax.sculpting.find_span import find_span
from polyattn.softmax.sculpting.row_patterns import views
from polyattn.softmax.sculpting.search_span import search_span
from polyattn.softmax.sculpting.sum_of_values import (
    ONE_HOT_GAIN,
    crude_sum,
    sculpt_again,
    sharp_sum,
)

# Examples that only validate: this share, at most so many.
HELD_OUT_SHARE, MOST_HELD_OUT = 0.1, 500

# Shares, ratios and counts below which a condition is called broken.
LEAST_CARRIED, LEAST_SINGULAR, LEAST_GAP = 0.05, 0.02, 1.2
LARGEST_RESIDUAL, LARGEST_ERROR = 0.15, 0.3

# The fact, what it means if the condition does not hold, and what if it does, where that is more
# than a full stop.
WORDS = {
    "residual test": (
        "a pattern over {measured} tokens has {n_weights} unknowns and {needed} equations; ",
        "it explains any output, so the residual has no power.",
        "what is left over tests whether heads agree.",
    ),
    "disagreement is seen": (
        "the patterns of {n_heads} heads have {measured} unknowns on a row and {needed} equations",
        ": heads can disagree without a residual.",
        ": a residual of zero means agreement.",
    ),
    "sum of values": (
        "the sum of the values carries {measured:.0%} of the squared outputs",
        (
            ", below {needed:g}: the values nearly cancel, and no pattern can be read from the "
            "outputs."
        ),
    ),
    "sum of values is regular": (
        "singular value {position} of the sum of values is {ratio:.2g} of the largest",
        ", below {needed:g}: patterns cannot be distinguished through so singular a sum.",
    ),
    "rows on which heads agree": (
        "{n_kept} rows give {measured} constraints for {needed} unknowns",
        ", fewer than {needed:g}: more examples are needed, or heads that agree more often.",
    ),
    "heads agree well": (
        (
            "half of the certified rows have a residual below {measured:.2g} of the spread of the "
            "outputs"
        ),
        "; heads disagree on them, or the outputs are noisy.",
    ),
    "K is bounded": ("{measured} directions are seen by no constraint.", "", ""),
    "one-hot rows": (
        "equations of the rows of largest margin hold {measured:.2g} times as well as patterns",
        ", less than {needed:g}: attention is soft, and S rests on patterns, not on margins.",
        ": S rests on them, as in the paper.",
    ),
    "spectral gap": (
        (
            "the first direction outside the span is {measured:.2g} times as well determined as "
            "the last one inside"
        ),
        ", below {needed:g}: the span may hold wrong directions.",
    ),
    "fit in the span": (
        "the best heads of the span leave {measured:.2g} of held-out outputs unexplained",
        ": noise, or the true heads are not near it.",
    ),
    "heads in K*": (
        "the heads that were found stray from K* by {measured:.2g} of its slacks",
        ": they are not among those that certified rows allow.",
        ": certified rows allow all of them.",
    ),
}


class Condition(NamedTuple):
    """One assumption: its name, whether it holds, what was measured, what is needed, in words."""

    name: str
    holds: bool
    measured: float
    needed: float
    sentence: str

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'FAILS'}  {self.name}: {self.sentence}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; what is infinite becomes None."""
        return dict(plain(self._asdict()))


class Sculpted(NamedTuple):
    """Heads of the last phase, before any polish over all of attn.

    attn : (m, d, d);  value : (m, d, e)
    conditions : what sculpting needs of the data, and whether it was there
    body, centre : K* and its centre (d, d)
    """

    attn: Matrix
    value: Matrix
    conditions: tuple[Condition, ...]
    body: ConvexBody
    centre: Matrix

    @property
    def failed(self) -> tuple[Condition, ...]:
        """The conditions that do not hold."""
        return tuple(condition for condition in self.conditions if not condition.holds)


def sculpt(
    training: Examples,
    n_heads: int,
    rng: np.random.Generator,
    recorder: Recorder | None = None,
    confidence: float | None = None,
) -> Sculpted:
    """The six phases on examples of m heads.

    ``recorder`` keeps what each phase measured, and every better candidate of phase 6.  With
    ``confidence`` K* is widened until it holds all heads of such layers that often
    (``calibrate``), and phase 6 certifies its candidates by it.

    Guarantee: none beyond the paper's asymptotic one; conditions that fail are named, the heads
    are then the best guess, and held-out error is in the figures of phase 6.
    Cost: see the phases, confidence / (1 - confidence) times as much for 1 to 4 with
    ``confidence``; about a second for 20,000 examples of (m, d, k) = (2, 8, 4), beside the
    paper's (d k)^O(m^3).
    """
    n_heads = require_integer("n_heads", n_heads)
    if (n_different := training.n_different) < 2:
        raise InvalidInput(f"sculpting needs at least two different examples; got {n_different}.")
    n_held_out = max(1, min(MOST_HELD_OUT, int(HELD_OUT_SHARE * n_different)))
    held_out, fitting = training.split(n_held_out)
    blocks = views(fitting)
    recorder = recorder or Recorder()

    with recorder.phase("crude sum") as note:
        crude, carried = crude_sum(blocks, note)
    with recorder.phase("sculpt") as note:
        wide = carve(blocks, crude, note)
    with recorder.phase("minimum norm") as note:
        sharp = sharp_sum(blocks, crude, wide, note)
    with recorder.phase("sculpt again") as note:
        carved, S = sculpt_again(blocks, sharp.fit.S, n_heads, note)
        if confidence is not None and len(carved.body) > 0:
            carved = _widened(carved, calibrate(blocks, carved, S, n_heads, rng, confidence), note)
    with recorder.phase("span") as note:
        span = find_span(carved, n_heads, rng, note)
    with recorder.phase("search") as note:
        # A body that was not calibrated is too tight for several heads.
        certain = None if confidence is None or len(carved.body) == 0 else carved.body
        found = search_span(fitting, held_out, span, n_heads, rng, recorder, note, certain)

    # What sculpting needs, and what the phases measured of it.
    n_outputs = training.n_outputs
    # The fewest tokens, of two or more, that a query attends to.
    length = min(block.keys.shape[1] for block in blocks if block.keys.shape[1] > 1)
    unknowns = n_heads * (length - 1)
    # Whether patterns can be read through S.
    sigma = np.linalg.svd(S, compute_uv=False)
    position = min(length, len(sigma)) - 1
    ratio = float(sigma[position] / sigma[0]) if sigma[0] > 0 else 0.0
    regular = ratio if len(sigma) >= length - 1 else 0.0
    count, n_unknowns = len(carved.body), carved.centre.size
    residual, n_free = carved.figures["residuals"][1], len(carved.body.free)
    facts = {"n_weights": length - 1, "n_heads": n_heads, "position": position + 1, "ratio": ratio}
    conditions = []
    for name, holds, measured, needed in (
        ("residual test", length <= n_outputs, length, n_outputs),
        ("disagreement is seen", unknowns <= n_outputs, unknowns, n_outputs),
        ("sum of values", carried >= LEAST_CARRIED, carried, LEAST_CARRIED),
        ("sum of values is regular", regular >= LEAST_SINGULAR, regular, LEAST_SINGULAR),
        ("rows on which heads agree", count >= n_unknowns, count, n_unknowns),
        ("heads agree well", residual <= LARGEST_RESIDUAL, residual, LARGEST_RESIDUAL),
        ("K is bounded", n_free == 0, n_free, 0),
        ("one-hot rows", sharp.one_hot, sharp.gain, ONE_HOT_GAIN),
        ("spectral gap", span.gap >= LEAST_GAP, span.gap, LEAST_GAP),
        ("fit in the span", found.error <= LARGEST_ERROR, found.error, LARGEST_ERROR),
        *(
            [("heads in K*", found.stray <= 1.0, found.stray, 1.0)]
            if found.stray is not None
            else []
        ),
    ):
        fact, bad, good = (*WORDS[name], ".")[:3]
        sentence = (fact + (good if holds else bad)).format(
            measured=measured, needed=needed, n_kept=carved.figures["kept"], **facts
        )
        conditions.append(Condition(name, bool(holds), float(measured), float(needed), sentence))
    if not len(span.directions):
        alone = Condition("spectral gap", True, 1.0, 1.0, "one head needs no directions.")
        conditions = [alone if each.name == alone.name else each for each in conditions]
    heads = found.heads
    return Sculpted(heads.attn, heads.value, tuple(conditions), carved.body, carved.centre)


def _widened(carved: Carved, calibration: Calibration, note: Note) -> Carved:
    """K* with calibrated slacks, and what the note says of them."""
    slack = calibration.factor * carved.figures["slack"]
    note.say(
        f"{note.sentence} Slacks times {calibration.factor:.2g} hold all heads of "
        f"{calibration.confidence:.0%} of layers planted on these tokens.",
        factor=calibration.factor,
        confidence=calibration.confidence,
        strays=calibration.strays,
        slack=slack,
    )
    return replace(carved, body=carved.body.widened(calibration.factor))
