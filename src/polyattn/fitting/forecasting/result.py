"""Forecast: the tokens that follow, how far they can be trusted, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from polyattn.display import Description, Reported, Result
from polyattn.files.fields import (
    array,
    entries,
    flag,
    integer,
    nullable,
    number,
    require,
    text,
)
from polyattn.files.records import Record
from polyattn.fitting.result import FitResult
from polyattn.outcome import Meaning, Outcome, OutcomeSet
from polyattn.quoting import counted

ForecastName = Literal["within_tolerance", "beyond_tolerance", "not_judged", "diverged"]

FORECAST_OUTCOMES = OutcomeSet[ForecastName](
    "Forecast",
    {
        "within_tolerance": Meaning(
            True, "Expected errors stay below the tolerance up to the last step."
        ),
        "beyond_tolerance": Meaning(
            False, "Expected errors pass the tolerance before the last step of some sequence."
        ),
        "not_judged": Meaning(
            False, "Nothing says how exact one step is, so that no error can be expected."
        ),
        "diverged": Meaning(
            False, "A sequence left the range of the data by far, and was stopped there."
        ),
    },
)

# What is said of growth beyond float64.
LARGEST = 1e300

# Sequences whose figures are printed one by one.
MOST_LINES = 8

ARRAYS = ("flat_values", "n_done", "growth", "coordinate_errors")
FIELDS = entries(
    {
        "steps": integer(1), "tolerance": number(0), "single": flag,
        "one_step_error": nullable(number(0)), "of_fit": text(), "doubt": text(),
    }
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Forecast(Reported, Result):
    """What ``forecast`` returns.

    Attributes
    ----------
    values : array (N, steps, e), or list of arrays (k_i, e)
        The tokens that follow (their predicted coordinates).  A list where a sequence diverged:
        its array holds the steps before.  Of one sequence (n, d): (steps, e).
    n_done : array (N,)
        How many steps each sequence made: ``steps``, unless it diverged.
    growth : array (N, steps)
        The largest factor by which an error of the newest given token has grown at each step
        (the spectral norm of the derivative of the whole run, coordinates in units of their
        standard deviation); 0 behind the end of a run.
    coordinate_errors : array (N, steps, e)
        The root mean square error that the layer's own one-step errors add up to in each
        coordinate, in the same units and to first order: an estimate, and no bound; 1e300 behind
        the end of a run.  Zero, and without meaning, where ``one_step_error`` is None.
    expected_error : array (N, steps)
        The largest of these, that of the coordinate that fares worst.
    one_step_error : float | None
        Root mean square of the layer's error over one step on the sequences given, in the same
        units and of the coordinate where it is largest; None where nothing says it.
    tolerance : float
    fit : FitResult | None
        The fit behind it; None of a bare layer, and of a forecast from a file.
    """

    kind: ClassVar = "forecast"

    flat_values: NDArray[np.float64] = field(repr=False)
    n_done: NDArray[np.int64]
    growth: NDArray[np.float64] = field(repr=False)
    coordinate_errors: NDArray[np.float64] = field(repr=False)
    steps: int
    tolerance: float
    one_step_error: float | None
    single: bool = False
    of_fit: str = ""
    doubt: str = ""
    fit: FitResult | None = field(default=None, repr=False)

    @property
    def values(self) -> Any:
        """The tokens that follow, in the form of the sequences given."""
        each = np.split(self.flat_values, np.cumsum(self.n_done)[:-1])
        if self.single:
            return each[0]
        return each if np.any(self.n_done < self.steps) else np.stack(each)

    @property
    def n_sequences(self) -> int:
        """N, how many sequences were continued."""
        return len(self.n_done)

    @property
    def diverged(self) -> NDArray[np.bool_]:
        """Which sequences left the range of the data (N,)."""
        return np.asarray(self.n_done < self.steps)

    @property
    def expected_error(self) -> NDArray[np.float64]:
        """What errors add up to in the coordinate that fares worst (N, steps)."""
        return np.asarray(self.coordinate_errors.max(axis=2))

    @property
    def valid_steps(self) -> NDArray[np.int64] | None:
        """Steps of each sequence before its expected error passes the tolerance (N,)."""
        if self.one_step_error is None:
            return None
        above = self.expected_error > self.tolerance
        first = np.where(above.any(axis=1), above.argmax(axis=1), self.steps)
        return np.minimum(first, self.n_done).astype(np.int64)

    @property
    def exponents(self) -> NDArray[np.float64]:
        """The rate (N,), per step, at which errors grow: the finite-time Lyapunov exponent.

        Of the second half of a run, after what an error does at first; NaN of a run of no step.
        """
        found = np.full(self.n_sequences, np.nan)
        with np.errstate(divide="ignore"):
            logs = np.log(self.growth)
        for i, last in enumerate(self.n_done):
            middle = last // 2
            if last == 1:
                found[i] = logs[i, 0]
            elif last > 1:
                found[i] = (logs[i, last - 1] - logs[i, middle - 1]) / (last - middle)
        return np.nan_to_num(found, nan=np.nan, neginf=-np.log(LARGEST))

    @property
    def outcome(self) -> Outcome[ForecastName]:
        """Whether it can be used as it is, by a name of ``ForecastName``, and in words."""
        name, text, advice = self._judgement()
        if self.of_fit:
            text = f"{text} {self.of_fit}"
        if self.doubt:
            text = f"{text} {self.doubt}"
        return FORECAST_OUTCOMES(name, text, advice, doubtful=bool(self.doubt))

    def describe(self) -> Description:
        rates, valid = self.exponents, self.valid_steps
        facts: dict[str, Any] = {
            "steps": self.steps,
            "n_sequences": self.n_sequences,
            "n_diverged": int(self.diverged.sum()),
            "tolerance": self.tolerance,
            "one_step_error": self.one_step_error,
            "valid_steps": None if valid is None else int(np.median(valid)),
            "exponent": _median(rates),
        }
        about = (
            f"{counted(self.n_sequences, 'sequence')}, {counted(self.steps, 'step')} of "
            f"{counted(self.flat_values.shape[1], 'coordinate')}"
        )
        lines = tuple(
            f"sequence {i}: {self.n_done[i]} steps, exponent {rates[i]:.3g} a step"
            + ("" if valid is None else f", valid for about {valid[i]}")
            for i in range(min(self.n_sequences, MOST_LINES))
        )
        labels = {"valid_steps": "valid steps, median", "exponent": "exponent, median, per step"}
        return self._described("A forecast", about, facts, lines=lines, labels=labels)

    def arrays(self) -> dict[str, NDArray]:
        """The values one after the other, their numbers, and how errors grow."""
        return {name: getattr(self, name) for name in ARRAYS}

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata; the fit behind it is not kept."""
        names = ("steps", "tolerance", "single", "one_step_error", "of_fit", "doubt")
        return Record(self.kind, self.arrays(), {name: getattr(self, name) for name in names})

    @classmethod
    def from_record(cls, record: Record) -> Forecast:
        """The inverse of ``to_record``."""
        FIELDS(record.metadata, "metadata")
        arrays, steps = record.arrays, record.metadata["steps"]
        array((None,), least=0, most=steps, dtype="int64")(arrays.get("n_done"), "arrays.n_done")
        count, total = len(arrays["n_done"]), int(arrays["n_done"].sum())
        require(count > 0, "arrays.n_done", "numbers of at least one sequence", count)
        shape = (count, steps)
        checks = {
            "n_done": array((count,), least=0, most=steps, dtype="int64"),
            "flat_values": array((total, None)),
            "growth": array(shape, least=0.0, most=LARGEST),
            "coordinate_errors": array((*shape, None), least=0.0, most=LARGEST),
        }
        entries(checks)(arrays, "arrays")
        n_outputs, n_judged = (arrays[name].shape[-1] for name in ("flat_values", ARRAYS[-1]))
        require(
            n_outputs == n_judged > 0, "arrays.coordinate_errors",
            f"numbers of {counted(n_outputs, 'coordinate')}", n_judged,
        )  # fmt: skip
        held: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
        return cls(**held, **record.metadata)

    def __repr__(self) -> str:
        return (
            f"Forecast({counted(self.n_sequences, 'sequence')}, {counted(self.steps, 'step')}, "
            f"{self.outcome.name})"
        )

    def _judgement(self) -> tuple[ForecastName, str, str]:
        who = counted(self.n_sequences, "sequence")
        rate = _median(self.exponents)
        grows = "" if rate is None else f" Errors {_rate(rate)}."
        if self.diverged.any():
            first = int(self.n_done.min()) + 1
            some = int(self.diverged.sum())
            text = (
                f"{some} of {who} left the range of the data by far, the first at step {first} of "
                f"{self.steps}, and stopped there.{grows}"
            )
            advice = "Forecast fewer steps, or fit again with a ridge or another form."
            return "diverged", text, advice
        text = f"{who[:1].upper()}{who[1:]} went on for {counted(self.steps, 'step')}.{grows}"
        valid = self.valid_steps
        if valid is None or self.one_step_error is None:
            advice = (
                "Give sequences that are longer than what the layer attends to, so that its "
                "error over one step can be measured on them."
            )
            return "not_judged", f"{text} How exact one step is, is not known.", advice
        measured = (
            f"One step is wrong by {self.one_step_error:.2g} standard deviations (root mean square"
            f"{self._of_worst()})"
        )
        if valid.min() >= self.steps:
            worst = float(self.expected_error.max())
            where = self._named(*np.unravel_index(self.expected_error.argmax(), self.growth.shape))
            text += (
                f" {measured}; errors{where} are expected to add up to about {worst:.2g}, which is "
                "an estimate and no bound."
            )
            return "within_tolerance", text, ""
        least, most, middle = int(valid.min()), int(valid.max()), int(np.median(valid))
        span = "" if least == most else f" (from {least} to {most})"
        after = f"after about {counted(middle, 'step')}{span}" if most else "at the first step"
        where = self._named(int(valid.argmin()), least)
        text += f" {measured}; errors{where} add up to {self.tolerance:g} {after}, an estimate."
        return "beyond_tolerance", text, self._what_is_left(most)

    def _what_is_left(self, most: int) -> str:
        if most:
            return "Use the steps before: forecast.valid_steps."
        if self.coordinate_errors.shape[2] == 1:
            return "Do not use it."
        return "Which coordinates can be used for longer: forecast.coordinate_errors."

    def _of_worst(self) -> str:
        return "" if self.coordinate_errors.shape[2] == 1 else ", the worst coordinate"

    def _named(self, sequence: Any, step: Any) -> str:
        """Which coordinate fares worst there; nothing where there is one only."""
        if self.coordinate_errors.shape[2] == 1:
            return ""
        return f" of coordinate {int(self.coordinate_errors[sequence, step].argmax())}"


def _rate(rate: float) -> str:
    factor = f"{np.exp(min(abs(rate), 690.0)):.3g}"
    # A factor that is 1 in the digits shown is no growth.
    if factor == "1":
        return "neither grow nor fade in the long run"
    return f"{'grow' if rate > 0 else 'fade'} by a factor of {factor} a step in the long run"


def _median(numbers: NDArray) -> float | None:
    known = numbers[np.isfinite(numbers)]
    return float(np.median(known)) if len(known) else None
