"""The six phases of Chen and Li against the truth, each by itself and without any polish.

What every phase is for, measured with the planted heads in hand: the sum of the values, the affine
hull of the heads, whether K* contains them, their span, and the heads that the search ends with.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.model import SoftmaxAttention, match_heads
from polyattn.softmax.examples import ExampleBlock, Examples
from polyattn.softmax.recorder import Recorder
from polyattn.softmax.sculpting import sculpt
from polyattn_papers.tasks.softmax_methods import NO_CLAIM, Attempt, Task

#: How sure K* is to be to contain the heads.
CONFIDENCE = 0.9


@dataclass(frozen=True)
class PhaseErrors:
    """Errors are relative, and smaller is better but for ``span_cosine``.

    Attributes
    ----------
    crude_sum, sharp_sum, last_sum
        Of the sum of the values after phases 1, 3 and 4.
    one_hot
        Whether phase 3 took one-hot rows, as the paper does.
    hull_distance
        From the centre of K* to the affine hull of the heads, in norms of the first head.
    contained
        Whether all heads lie in K*.
    slack_needed
        By how much the slacks of K* would have to be multiplied to contain them.
    body_width
        Of K* along a typical direction, in norms of the first head; infinite where no row was
        certified, and K* is everything.
    span_cosine
        Of the largest angle between the span of the heads and the one that was found.
    certified
        Whether the heads that the search ends with lie in K*.
    heads_error
        The larger error of attn and value of any head at the end of phase 6.
    failed
        The conditions of sculpting that do not hold.
    """

    crude_sum: float
    sharp_sum: float
    last_sum: float
    one_hot: bool
    hull_distance: float
    contained: bool
    slack_needed: float
    body_width: float
    span_cosine: float
    certified: bool
    heads_error: float
    failed: str


#: The columns of a table for those who have none.
NO_PHASES: dict[str, object] = dict.fromkeys(PhaseErrors.__dataclass_fields__)


def by_phases(task: Task, n_heads: int, seed: int) -> tuple[Attempt, PhaseErrors]:
    """The phases on the examples of a task, without descent over all of attn."""
    X, Y = np.asarray(task.X), np.asarray(task.Y)
    examples = Examples((ExampleBlock(X, Y.reshape(len(X), -1, Y.shape[-1]), None),))
    recorder, start = Recorder(), time.perf_counter()
    found = sculpt(examples, n_heads, np.random.default_rng(seed), recorder, CONFIDENCE)
    spent = time.perf_counter() - start
    layer = SoftmaxAttention(found.attn, found.value, task.layer.mode)
    figures = {phase.name: phase.figures for phase in recorder.phases}
    attn, total = task.layer.attn, task.layer.value.sum(axis=0)
    crude, sharp, last = (
        _relative(np.array(figures[name]["S"]), total)
        for name in ("crude sum", "minimum norm", "sculpt again")
    )
    centre, directions = found.centre, np.array(figures["span"]["directions"])
    needed = max(found.body.stray(A) for A in attn)
    stray, width = figures["search"]["stray"], figures["span"]["typical_width"]
    match = match_heads(layer, task.layer)
    errors = PhaseErrors(
        crude_sum=crude,
        sharp_sum=sharp,
        last_sum=last,
        one_hot=figures["minimum norm"]["one_hot"],
        hull_distance=hull_distance(centre, attn),
        contained=needed <= 1.0,
        slack_needed=needed,
        body_width=np.inf if width is None else width / float(np.linalg.norm(attn[0])),
        span_cosine=span_cosine(centre, directions, attn),
        certified=stray is not None and stray <= 1.0,
        heads_error=max(match.worst_attn, match.worst_value),
        failed=", ".join(condition.name for condition in found.failed),
    )
    return Attempt(layer, NO_CLAIM, False, spent, len(X)), errors


def columns(errors: PhaseErrors) -> dict[str, object]:
    """For a table: what is infinite becomes None."""
    return {
        name: None if isinstance(value, float) and not np.isfinite(value) else value
        for name, value in asdict(errors).items()
    }


def hull_distance(A: NDArray[np.float64], attn: NDArray[np.float64]) -> float:
    """||A - affine hull of the heads||, relative to the first head."""
    apart = (A - attn[0]).ravel()
    if len(attn) > 1:
        directions = (attn[1:] - attn[0]).reshape(len(attn) - 1, -1).T
        apart = apart - directions @ np.linalg.lstsq(directions, apart)[0]
    return float(np.linalg.norm(apart) / np.linalg.norm(attn[0]))


def span_cosine(
    base: NDArray[np.float64], directions: NDArray[np.float64], attn: NDArray[np.float64]
) -> float:
    """Cosine of the largest angle between the span of all heads and that of base and directions."""
    found = np.concatenate([base.reshape(1, -1), directions.reshape(len(directions), base.size)])
    own = np.linalg.qr(found.T)[0]
    true = np.linalg.qr(attn.reshape(len(attn), -1).T)[0]
    return float(np.linalg.svd(own.T @ true, compute_uv=False).min())


def _relative(found: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))
