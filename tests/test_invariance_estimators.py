"""Estimators are the fits they call: in one piece or in parts, and at every scale."""

import numpy as np
import pytest
from hypothesis import strategies as st

import polyattn as pa
from exact_cases import Case, draw
from exact_judge import Answer, Judge
from invariances import few_and_many, hold, numbers_of_cases, parts_of

#: Solvers, whether the estimator may stream with them, and as what it is judged.
FITTED = ("auto", "primal", "dual", "direct", "iterative")
STREAMED = {"auto": "moments", "primal": "moments", "direct": "factor"}

powers = st.integers(-60, 60)
cut_lists = st.lists(st.integers(1, 50), max_size=3)


def rows_of(case: Case, outputs) -> np.ndarray:
    """Predictions of an estimator as rows."""
    return outputs if case.mode == "last" else np.concatenate(outputs)


def regressor(case: Case, solver: str) -> pa.LinearAttentionRegressor:
    return pa.LinearAttentionRegressor(case.mode, case.ridge, solver=solver, bias=case.bias)


def streamed(case: Case, solver: str, cuts: list[int]) -> pa.LinearAttentionRegressor:
    estimator = regressor(case, solver)
    for part in parts_of(case, cuts):
        estimator.partial_fit(*part)
    return estimator


def check_regressor(number: int, cuts: list[int]) -> None:
    case = draw(number)
    judge = Judge(case)
    for solver in FITTED:
        whole = regressor(case, solver).fit(case.X, case.targets, case.weights)
        answer = Answer.of(whole.result_, case)
        assert judge.complaints(answer, solver) == [], (case.number, solver)
        assert np.array_equal(rows_of(case, whole.predict(case.X)), answer.outputs)
        if solver in STREAMED:
            parts = streamed(case, solver, cuts)
            complaints = judge.complaints(Answer.of(parts.result_, case), STREAMED[solver])
            assert complaints == [], (case.number, solver)


@few_and_many
def test_a_regressor_finds_the_rational_optimum_in_parts_too(examples):
    hold(check_regressor, examples, number=numbers_of_cases, cuts=cut_lists)


def classified(case: Case, tokens: int, weights: int):
    """Labels and scores after tokens and weights were multiplied by powers of two."""
    X = [np.ldexp(x, tokens) for x in case.X]
    labels = np.where(case.rows[:, 0] > np.median(case.rows[:, 0]), "b", "a")
    labels[0], labels[-1] = "a", "b"
    given_weights = np.ones(len(X)) if case.weights is None else case.weights
    given_weights = np.maximum(given_weights, given_weights.max() / 4)
    estimator = pa.LinearAttentionClassifier(case.mode, "gcv", bias=False)
    estimator.fit(X, labels, np.ldexp(given_weights, 2 * weights))
    return estimator.predict(X), estimator.decision_function(X), estimator.result_


def check_classifier(number: int, tokens: int, weights: int) -> None:
    """The ridge is chosen by the data, moves with them, and no label changes."""
    case = next(
        c for c in map(draw, range(number, number + 1000))
        if c.mode == "last" and len(c.X) > 3 and not c.bias and c.exact.rank
    )  # fmt: skip
    labels, scores, result = classified(case, 0, 0)
    others, other_scores, other = classified(case, tokens, weights)
    assert np.array_equal(labels, others), case.number
    assert np.array_equal(scores, other_scores), case.number
    assert other.ridge == np.ldexp(result.ridge, 6 * tokens + 2 * weights)


@few_and_many
def test_labels_do_not_know_units(examples):
    hold(check_classifier, examples, number=numbers_of_cases, tokens=powers, weights=powers)


def check_scores_do_not_know_units(number, tokens, targets) -> None:
    case = next(
        c for c in map(draw, range(number, number + 1000)) if not c.bias and len(c.rows) > 3
    )
    one = regressor(case, "auto").fit(case.X, case.targets, case.weights)
    X = [np.ldexp(x, tokens) for x in case.X]
    Y = [np.ldexp(y, targets) for y in case.targets]
    Y = np.array(Y) if case.mode == "last" else Y
    ridge = float(np.ldexp(case.ridge, 6 * tokens))
    other = pa.LinearAttentionRegressor(case.mode, ridge).fit(X, Y, case.weights)
    score = one.score(case.X, case.targets, case.weights)
    assert other.score(X, Y, case.weights) == pytest.approx(score, rel=1e-12, abs=1e-12)


@few_and_many
def test_scores_do_not_know_units(examples):
    hold(
        check_scores_do_not_know_units,
        examples,
        number=numbers_of_cases,
        tokens=powers,
        targets=powers,
    )
