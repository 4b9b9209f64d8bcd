"""LearningCurve: risks over numbers of sequences, their errors, and what they say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from polyattn.display import Description, Reported, Result
from polyattn.files.fields import (
    Check,
    array,
    check_that,
    entries,
    flag,
    integer,
    number,
    one_of,
    require,
)
from polyattn.files.records import Record
from polyattn.form.form import Form
from polyattn.form.in_words import form_in_words, form_sizes
from polyattn.form.layout import Layout
from polyattn.form.stored import FORM_FIELDS, form_fields, stored_layout
from polyattn.outcome import Meaning, Outcome, OutcomeSet
from polyattn.sequences import MODES
from polyattn.sizes_in_words import sizes_in_words
from polyattn.solve.ridge import RULES

CurveName = Literal["falling", "levelled", "undecided", "above_least"]

CURVE_OUTCOMES = OutcomeSet[CurveName](
    "LearningCurve",
    {
        "falling": Meaning(True, "The test risk still falls at the largest size."),
        "levelled": Meaning(True, "The last step in size changes the test risk by noise alone."),
        "undecided": Meaning(
            False, "The last step in size lowers the test risk by much, and noise may be all of it."
        ),
        "above_least": Meaning(
            False, "The test risk at the largest size is above that of a smaller one."
        ),
    },
)  # fmt: skip

# Differences of so many standard errors count.
COUNTS = 2.0

# No risk is larger: squares of such numbers are finite.
LARGEST = 1e150

# A risk so much above both ends of a curve is a peak, and one so much above the last a steep fall.
PEAK = 1.2

RIDGE = check_that(lambda ridge: type(ridge) is float or ridge in RULES, "a number or a rule")

# What a file holds as it is: of the layer, and beside it.
LAYER: dict[str, Check] = {"mode": one_of(MODES), "bias": flag, "n_dims": integer(1)}
PLAIN: dict[str, Check] = {
    **LAYER, "n_outputs": integer(1), "n_test": integer(1), "ridge": RIDGE,
    "target_power": number(0),
}  # fmt: skip

FIELDS = entries(PLAIN, FORM_FIELDS)

ARRAYS = ("sizes", "n_rows", "train_risks", "test_risks", "test_covariance")


@dataclass(frozen=True, eq=False)
class LearningCurve(Reported, Result):
    """What ``learning_curve`` returns.

    Attributes
    ----------
    sizes : array (k,)
        Numbers of training sequences, ascending.
    n_rows : array (k,)
        Predicted positions of so many sequences, in the mean over repeats.
    train_risks, test_risks : array (n_repeats, k)
        Mean over predicted positions of ||y - F(X)||^2, for every repeat and size.
    test_covariance : array (k, k)
        Of the errors that ``test_risk`` has because other sequences could have been held out,
        estimated from how the held-out ones differ.
    layout : Layout
        The layers that were fitted; without a ridge the test risk has its peak near
        ``n_rows = n_features``.
    target_power : float
        Mean of ||y||^2 on test data: the risk of predicting nothing.
    """

    kind: ClassVar = "learning_curve"

    sizes: NDArray[np.int64]
    n_rows: NDArray[np.float64]
    train_risks: NDArray[np.float64]
    test_risks: NDArray[np.float64]
    test_covariance: NDArray[np.float64]
    layout: Layout = field(repr=False)
    n_outputs: int
    n_test: int
    ridge: float | str
    target_power: float

    @property
    def form(self) -> Form:
        """Which layers were fitted."""
        return self.layout.form

    @property
    def n_features(self) -> int:
        """p, the number of coefficients for each output."""
        return self.layout.n_features

    @property
    def n_repeats(self) -> int:
        """How often sequences were drawn."""
        return len(self.test_risks)

    @property
    def train_risk(self) -> NDArray[np.float64]:
        """The mean training risk at each size (k,)."""
        return np.asarray(self.train_risks.mean(axis=0), dtype=np.float64)

    @property
    def test_risk(self) -> NDArray[np.float64]:
        """The mean test risk at each size (k,)."""
        return np.asarray(self.test_risks.mean(axis=0), dtype=np.float64)

    @property
    def test_error(self) -> NDArray[np.float64]:
        """The standard error of ``test_risk`` (k,), over repeats and held-out sequences.

        Both parts are added as if they were independent, which is a little too much where every
        repeat holds out others.  Of a single held-out sequence only the first is known.
        """
        sampled = np.sqrt(np.diag(self.test_covariance))
        return np.asarray(np.hypot(_standard_error(self.test_risks), sampled), dtype=np.float64)

    @property
    def train_error(self) -> NDArray[np.float64]:
        """The standard error of ``train_risk`` over repeats alone (k,)."""
        return _standard_error(self.train_risks)

    @property
    def outcome(self) -> Outcome[CurveName]:
        """What the last sizes say, by a name of ``CurveName``, and in words."""
        risk, error = self.test_risk, self.test_error
        least, last = int(np.argmin(risk)), len(risk) - 1
        text = (
            f"With {self.sizes[last]:,} sequences the test risk is {risk[last]:.4g} ± "
            f"{error[last]:.2g}, the training risk {self.train_risk[last]:.4g}."
        )
        if self.n_test == 1:
            text += " Only one sequence was held out."
        text += self._peak_in_words()
        for lower in (least, last - 1):
            above, spread = self._step(lower, last)
            if above > COUNTS * spread:
                text += f" With {self.sizes[lower]:,} it is lower: {risk[lower]:.4g}."
                advice = "More sequences, well above the number of coefficients, or a ridge."
                return CURVE_OUTCOMES("above_least", text, advice)
        if -above > COUNTS * spread:
            return CURVE_OUTCOMES("falling", text, "More sequences would lower it further.")
        text += (
            f" The last step, {abs(above):.2g}, is at most {COUNTS:g} times its error of "
            f"{spread:.2g}."
        )
        if risk[last - 1] > PEAK * risk[last]:
            text += " It may not have levelled."
            advice = "Give more sizes near the largest, or more repeats."
            return CURVE_OUTCOMES("undecided", text, advice)
        return CURVE_OUTCOMES("levelled", text)

    def table(self) -> list[dict[str, float]]:
        """One row for each size: sizes, risks and their standard errors."""
        names = ("sizes", "n_rows", "train_risk", "train_error", "test_risk", "test_error")
        columns = [getattr(self, name).tolist() for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def describe(self) -> Description:
        sizes = {"n_outputs": self.n_outputs, **self._layer}
        names = ("n_features", "n_repeats", "n_test", "ridge", "target_power")
        facts: dict[str, Any] = {name: getattr(self, name) for name in names}
        facts["curve"] = self.table()
        lines = tuple(
            f"{row['sizes']:>9,}  train {row['train_risk']:.4g} ± {row['train_error']:.2g}"
            f"  test {row['test_risk']:.4g} ± {row['test_error']:.2g}"
            for row in self.table()
        )
        about = f"Linear attention, {sizes_in_words(**sizes, form=form_in_words(self.layout))}"
        sizes |= form_sizes(self.layout)
        return self._described("A learning curve", about, facts, sizes=sizes, lines=lines)

    def arrays(self) -> dict[str, NDArray]:
        """Sizes, and the risks of all repeats."""
        return {name: getattr(self, name) for name in ARRAYS}

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata."""
        beside = {name: getattr(self, name) for name in PLAIN if name not in LAYER}
        return Record(self.kind, self.arrays(), beside | self._layer | form_fields(self.layout))

    @classmethod
    def from_record(cls, record: Record) -> LearningCurve:
        """The inverse of ``to_record``."""
        arrays, metadata = record.arrays, record.metadata
        FIELDS(metadata, "metadata")
        first = arrays.get("test_risks")
        repeats, count = first.shape if first is not None and first.ndim == 2 else (2, 2)
        require(
            min(repeats, count) > 1, "arrays.test_risks", "two rows and columns", (repeats, count)
        )
        risks = array((repeats, count), least=0.0, most=LARGEST)
        sizes = array((count,), least=1, dtype="int64")
        checks = {"sizes": sizes, "n_rows": array((count,), least=0.0, most=LARGEST)}
        checks |= {"train_risks": risks, "test_risks": risks}
        checks["test_covariance"] = array((count, count), least=-(LARGEST**2), most=LARGEST**2)
        entries(checks)(arrays, "arrays")
        covariance = arrays["test_covariance"]
        symmetric = np.array_equal(covariance, covariance.T) and np.diag(covariance).min() >= 0
        require(symmetric, "arrays.test_covariance", "a covariance", covariance.tolist())
        ascending = bool(np.all(np.diff(arrays["sizes"]) > 0))
        require(ascending, "arrays.sizes", "ascending numbers", arrays["sizes"].tolist())
        held: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
        held |= {name: metadata[name] for name in PLAIN if name not in LAYER}
        return cls(**held, layout=stored_layout(metadata))

    def __repr__(self) -> str:
        return (
            f"LearningCurve({self.n_repeats} repeats of {len(self.sizes)} sizes, "
            f"{self.outcome.name}, test risk {self.test_risk[-1]:.3g})"
        )

    @property
    def _layer(self) -> dict[str, Any]:
        """What a file and a description hold of the layer, beside its form."""
        return {"n_dims": self.layout.n_dims, "mode": self.form.mode, "bias": self.form.bias}

    def _step(self, lower: int, upper: int) -> tuple[float, float]:
        """How far the test risk at one size is above that at another, and its standard error."""
        difference = self.test_risks[:, upper] - self.test_risks[:, lower]
        covariance = self.test_covariance[np.ix_([upper, lower], [upper, lower])]
        sampled = max(0.0, float(np.trace(covariance) - 2 * covariance[0, 1]))
        error = np.hypot(_standard_error(difference), np.sqrt(sampled))
        return float(difference.mean()), float(error)

    def _peak_in_words(self) -> str:
        """Where the test risk is highest, if that is between both ends."""
        risk = self.test_risk
        top = int(np.argmax(risk))
        if risk[top] <= PEAK * max(risk[0], risk[-1]):
            return ""
        return (
            f" It peaks at {risk[top]:.3g} with {self.sizes[top]:,} ({self.n_rows[top]:,.0f} "
            f"positions, {self.n_features:,} coefficients)."
        )


def _standard_error(risks: NDArray) -> NDArray[np.float64]:
    return np.asarray(risks.std(axis=0, ddof=1) / np.sqrt(len(risks)), dtype=np.float64)
