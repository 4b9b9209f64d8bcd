"""learning_curve: the optimum for more and more sequences, and its risk on others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, OutOfRange, require_integer
from polyattn.fitting.curve_result import LARGEST, LearningCurve
from polyattn.fitting.fit import fit
from polyattn.fitting.result import FitResult
from polyattn.form.context import as_context
from polyattn.form.form import Form, require_form
from polyattn.form.layout import Layout
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.quoting import shown
from polyattn.sequences import (
    SequenceBatch,
    Sequences,
    as_batch,
    equal_sequences,
    require_aligned,
    split_apart,
)
from polyattn.solve.planning import plan
from polyattn.solve.ridge import require_ridge
from polyattn.sources.source import Source
from polyattn.stats import Moments
from polyattn.targets import Targets, as_targets

# The part of the sequences that is held out where no test data are given, and the default sizes.
HELD_OUT, N_SIZES = 0.25, 8


def learning_curve(
    X: Sequences,
    Y: Targets,
    train_sizes: Sequence[int] | None = None,
    mode: str = "last",
    ridge: float | str = 0.0,
    bias: bool = False,
    *,
    form: Form | None = None,
    context: Sequences | None = None,
    X_test: Sequences | None = None,
    Y_test: Targets | None = None,
    context_test: Sequences | None = None,
    n_repeats: int = 5,
    random_state: RandomState = 0,
) -> LearningCurve:
    """Risks of the global optimum for more and more sequences, on these and on others.

    Each repeat puts the sequences in a random order and fits the first n of them, for every size
    n: sizes are nested.  Since every point is a global optimum, the curve shows the data and the
    layer, and nothing of an optimiser.  Without a ridge the test risk has its peak where there
    are as many predicted positions as coefficients.

    Parameters
    ----------
    X, Y, mode, ridge, bias, form, context
        As for ``fit``; a rule chooses the ridge anew for every fit.
    train_sizes : list of int, optional
        Numbers of training sequences.  By default eight, in equal ratios up to all there are,
        and that at which there are as many predicted positions as coefficients.
    X_test, Y_test, context_test : sequences, targets and context, optional
        What the test risk is measured on.  By default each repeat holds out a quarter of X, equal
        sequences together.
    n_repeats : int
        At least 2.  Error bars of test risks count how risks differ between repeats, and between
        held-out sequences.  The first part is too small for sizes near all sequences, since
        their samples overlap; for independent ones draw new data.
    random_state : int, Generator or None

    Returns
    -------
    LearningCurve
        Risks for each repeat and size, their means and standard errors, and in words whether
        more sequences would help.

    Cost: that of the fits; where sums of size p x p determine all coefficients, each sequence is
    added to them once in a repeat, whatever the number of sizes.
    """
    if isinstance(X, Source) or isinstance(X_test, Source):
        raise InvalidInput(
            "learning_curve draws sequences at random, again and again, and holds them in memory: "
            "give arrays, such as a sample of the source."
        )
    chosen = require_form(form, mode, bias)
    ridge = require_ridge(ridge, None)
    n_repeats = require_integer("n_repeats", n_repeats, 2)
    rng = require_generator(random_state)
    data = _Data.of(X, Y, context, chosen)
    if (X_test is None) != (Y_test is None):
        raise InvalidInput("give X_test and Y_test, or neither.")
    if X_test is None and context_test is not None:
        raise InvalidInput("context_test belongs to X_test, which was not given.")
    test = None
    if X_test is not None and Y_test is not None:
        test = _Data.of(X_test, Y_test, context_test, chosen, data)
    tested = test or data
    numbers = equal_sequences((tested.batch, tested.context))
    splits = [_split(data, numbers, rng, test is None) for _ in range(n_repeats)]
    sizes = _checked_sizes(train_sizes, min(len(order) for order, _ in splits), data)
    measured, powers = [], []
    # Copies are one draw: together they add to the error of the risks.
    shares = np.zeros((numbers.max() + 1, len(sizes)))
    for order, held in splits:
        unseen = test or data.chosen(held)
        risks, seen_shares = _risks(data, order, sizes, ridge, unseen)
        measured.append(risks)
        np.add.at(shares, numbers[held], seen_shares / n_repeats)
        powers.append(float(np.mean(_squared(unseen.targets))))
    n_test = len(np.unique(numbers[held]))
    train_risks, test_risks, n_rows = np.array(measured).transpose(1, 0, 2)
    if not max(train_risks.max(), test_risks.max(), *powers) <= LARGEST:
        raise OutOfRange(f"risks are above {LARGEST:g}; divide the targets by a constant.")
    return LearningCurve(
        sizes=np.array(sizes, dtype=np.int64), n_rows=n_rows.mean(axis=0),
        train_risks=np.ascontiguousarray(train_risks),
        test_risks=np.ascontiguousarray(test_risks), test_covariance=_covariance(shares, n_test),
        layout=data.layout, n_outputs=data.n_outputs, n_test=n_test, ridge=ridge,
        target_power=float(np.mean(powers)),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Data:
    """Sequences, what they attend to, and the targets of their predicted positions (rows, e)."""

    batch: SequenceBatch
    context: SequenceBatch | None
    targets: NDArray
    layout: Layout

    @classmethod
    def of(
        cls, X: Sequences, Y: Targets, context: Sequences | None, form: Form,
        like: _Data | None = None,
    ) -> _Data:  # fmt: skip
        """Checked; ``like``: data whose numbers of coordinates and outputs they must have."""
        layout = None if like is None else like.layout
        require_aligned(X, Y)
        batch = as_batch(X, n_dims=None if layout is None else layout.n_dims)
        attended = as_context(context, batch, form, layout)
        if layout is None:
            layout = Layout.of(form, batch.n_dims, None if attended is None else attended.n_dims)
        n_outputs = None if like is None else like.n_outputs
        return cls(batch, attended, as_targets(Y, batch, form.mode, n_outputs), layout)

    @property
    def n_outputs(self) -> int:
        """e, the coordinates of a target."""
        return self.targets.shape[1]

    @property
    def shaped_targets(self) -> NDArray | SequenceBatch:
        """Targets as ``fit`` takes them."""
        if self.layout.form.mode == "last":
            return self.targets
        return SequenceBatch(self.targets, self.batch.offsets)

    def chosen(self, which: NDArray[np.intp]) -> _Data:
        """The sequences with these numbers."""
        targets = self.shaped_targets
        some = (
            targets.chosen(which).values if isinstance(targets, SequenceBatch) else targets[which]
        )
        attended = None if self.context is None else self.context.chosen(which)
        return _Data(self.batch.chosen(which), attended, some, self.layout)

    def risk_of(self, result: FitResult) -> tuple[float, NDArray]:
        """The mean squared error of a fit on these data, and what each sequence adds to it.

        Sequence i adds the sum of (its squared errors - the mean) / rows: by so much the mean
        over rows changes, to first order, for one more sequence like it [survey sampling: the
        linearised ratio estimator].
        """
        outputs = result.predict(self.batch, self.context)
        found = np.concatenate(outputs) if isinstance(outputs, list) else np.asarray(outputs)
        errors = _squared(found - self.targets)
        risk = float(np.mean(errors))
        last = self.layout.form.mode == "last"
        starts = np.arange(len(errors)) if last else self.batch.offsets[:-1]
        with np.errstate(over="ignore", invalid="ignore"):
            return risk, np.add.reduceat(errors - risk, starts) / len(errors)


def _split(
    data: _Data, numbers: NDArray[np.intp], rng: np.random.Generator, holds_out: bool
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """A random order of the sequences to fit, and those to test on; equal ones on one side."""
    if not holds_out:
        return rng.permutation(len(data.batch)), np.arange(len(numbers))
    order = rng.permutation(numbers.max() + 1)
    n_fitted = len(order) - max(1, int(HELD_OUT * len(order)))
    fitted, held = split_apart(numbers, order, n_fitted)
    # Without copies they are in random order.
    return fitted if len(order) == len(numbers) else rng.permutation(fitted), held


def _risks(
    data: _Data, order: NDArray[np.intp], sizes: list[int], ridge: float | str, test: _Data
) -> tuple[tuple[list[float], list[float], list[float]], NDArray]:
    """Training risks, test risks and rows for the first n sequences of an order.

    And what each sequence of ``test`` adds to the test risks (n_test, k).
    """
    train, tested, rows, shares = [], [], [], []
    layout, moments, added = data.layout, None, 0
    known: dict[str, Any] = {"form": layout.form, "n_context_dims": layout.n_context_dims}
    for size in sizes:
        part = data.chosen(order[:size])
        n_rows = len(part.targets)
        method = plan(n_rows, layout.n_dims, data.n_outputs, **known).solver
        result = None
        if method == "primal" and ridge != "loo":
            new = data.chosen(order[added:size])
            moments = moments or Moments(layout.n_dims, data.n_outputs, **known)
            moments.update(new.batch, new.shaped_targets, context=new.context)
            added = size
            result = fit(statistics=moments, ridge=ridge)
        # Sums cannot tell features that depend on each other from those that nearly do.
        if result is None or (result.rank is not None and result.rank < layout.n_features):
            result = fit(
                part.batch, part.shaped_targets, ridge=ridge, form=layout.form,
                context=part.context, try_exact=False,
            )  # fmt: skip
        train.append(result.risk)
        risk, added_by = test.risk_of(result)
        tested.append(risk)
        shares.append(added_by)
        rows.append(float(n_rows))
    return (train, tested, rows), np.column_stack(shares)


def _squared(residuals: NDArray) -> NDArray:
    """||residual||^2 of every row."""
    with np.errstate(over="ignore"):
        return np.asarray(np.sum(residuals**2, axis=1))


def _covariance(shares: NDArray, n_held: int) -> NDArray[np.float64]:
    """Of test risks to which independent sequences add these shares (k, k).

    In each repeat ``n_held`` of them add up to zero, which takes one degree of freedom.
    """
    found = shares.T @ shares * (n_held / max(1, n_held - 1))
    return np.asarray((found + found.T) / 2, dtype=np.float64)


def _checked_sizes(sizes: Sequence[int] | None, most: int, data: _Data) -> list[int]:
    """Ascending numbers of sequences, each once."""
    if sizes is None:
        if most < 3:
            raise InvalidInput(
                "learning_curve needs at least 3 sequences beside those that are held out; got "
                f"{most}."
            )
        peak = -(-data.layout.n_features * len(data.batch) // len(data.targets))
        found = {int(size) for size in np.geomspace(max(2, most / 64), most, N_SIZES)}
        return sorted(found | ({peak} if min(found) < peak < most else set()))
    try:
        wanted = sorted({require_integer("train_sizes", size) for size in sizes})
    except TypeError:
        wanted = []
    if len(wanted) < 2 or wanted[-1] > most:
        raise InvalidInput(
            f"train_sizes must be at least two different numbers of sequences, up to {most} (those "
            f"that are not held out for the test); got {shown(sizes)}."
        )
    return wanted
