"""Programs learned from traces, coefficient by coefficient."""

from dataclasses import replace

import numpy as np
import pytest

from polyattn import programs
from polyattn.certify.exact.modular import Echelon, primes
from polyattn.errors import InvalidInput
from polyattn.form.pairs import FoldedPairs, pair_index
from polyattn.programs.learning.coefficients import (
    CoefficientSpan,
    ExactSpan,
    innovative,
    learn_coefficients,
)
from polyattn.programs.learning.coefficients.active_pairs import RowFeatures
from polyattn.programs.learning.coefficients.token_types import TokenTypes, orthogonal_groups
from polyattn.programs.traces import Trace, TraceRows
from program_traces import (
    BUSY_BEAVER_3,
    dfa_schema,
    dfa_traces,
    turing_schema,
    turing_trace,
    turing_traces,
)

SMALL = (2, 3, 3)


def learn(traces, **options):
    """What is learned from traces of one schema."""
    listed = list(traces)
    return learn_coefficients(listed[0].schema, listed, **options)


def whole_features(rows):
    """vech(G) ⊗ x of each row, one by one, in the norm of T."""
    first, second = pair_index(rows.queries.shape[1])
    pairs = rows.grams[:, first, second] / FoldedPairs.whole(rows.queries.shape[1]).norm_weights
    return np.einsum("mp,ml->mpl", pairs, rows.queries).reshape(len(pairs), -1)


def rows_of_all(traces):
    return TraceRows.joined([TraceRows.of(trace) for trace in traces])


def histories(program, traces):
    return np.mean([right.all() for right in program.right(traces)])


def relabelled(traces, change):
    return [replace(trace, labels=change(trace.targets.astype(float))) for trace in traces]


def flipped(traces, share, seed=5):
    """A share of all labels replaced by labels of other rows."""
    rng = np.random.default_rng(seed)
    pool = rows_of_all(traces).targets

    def change(targets):
        hit = rng.random(len(targets)) < share
        return np.where(hit[:, None], pool[rng.integers(0, len(pool), len(targets))], targets)

    return relabelled(traces, change)


def noisy(traces, sigma, seed=5):
    rng = np.random.default_rng(seed)
    return relabelled(traces, lambda targets: targets + sigma * rng.standard_normal(targets.shape))


@pytest.mark.parametrize("n_traces", [15, 60])
def test_it_is_the_least_norm_solution_of_the_whole_problem(n_traces):
    traces = list(dfa_traces(SMALL, n_traces, seed=1))
    rows = rows_of_all(traces)
    features = whole_features(rows)
    theta = np.linalg.lstsq(features, rows.targets, rcond=1e-10)[0]
    coef = learn(traces).coef
    n_dims = rows.queries.shape[1]
    folded = theta.T.reshape(n_dims, -1, n_dims) / FoldedPairs.whole(n_dims).norm_weights[:, None]
    np.testing.assert_allclose(coef, folded, atol=1e-9)


def test_types_with_a_coordinate_in_common_do_not_change_the_least_norm():
    # Both kinds of tokens of the Turing machine hold the flag: the kernel is not block diagonal.
    traces = list(turing_traces((2, 2, 3), 12, seed=1, steps=(2, 6)))
    rows = rows_of_all(traces)
    types = TokenTypes.of(rows.queries)
    assert types.n_types > 1
    assert orthogonal_groups(rows.queries).max() == 0
    theta = np.linalg.lstsq(whole_features(rows), rows.targets, rcond=1e-10)[0]
    n_dims = rows.queries.shape[1]
    folded = theta.T.reshape(n_dims, -1, n_dims) / FoldedPairs.whole(n_dims).norm_weights[:, None]
    np.testing.assert_allclose(learn(traces).coef, folded, atol=1e-8)


def test_all_ways_to_predict_agree():
    program = learn(dfa_traces(SMALL, 40, seed=0))
    traces = list(dfa_traces(SMALL, 5, seed=9))
    rows = rows_of_all(traces)
    outputs = program.predict(rows.grams, rows.queries)
    single = [program.step(*row) for row in zip(rows.grams, rows.queries, strict=True)]
    np.testing.assert_allclose(outputs, single, atol=1e-12)
    prefix = traces[0].tokens[: len(traces[0].prompt) + 3].astype(float)
    np.testing.assert_allclose(program.layer(prefix), outputs[3], atol=1e-9)
    np.testing.assert_allclose(program.layer.coef, program.coef, atol=1e-9)


def test_universal_automata_from_five_thousand_rows():
    sizes, fresh = (4, 4, 4), list(dfa_traces((4, 4, 4), 200, seed=999))
    few, enough = (learn(dfa_traces(sizes, n, seed=0)) for n in (444, 555))
    assert (few.n_rows, enough.n_rows) == (3996, 4995)
    assert np.concatenate(few.right(fresh)).mean() >= 0.99
    assert histories(enough, fresh) == 1.0
    assert enough.ridge == 0
    assert enough.largest_error < 1e-10


def test_words_of_mixed_lengths():
    traces = dfa_traces(SMALL, 400, seed=0, mixed=True)
    assert histories(learn(traces), dfa_traces(SMALL, 200, seed=9, mixed=True)) == 1.0


def test_a_small_universal_turing_machine():
    sizes = (2, 2, 3)
    program = learn(turing_traces(sizes, 250, seed=0))
    assert histories(program, turing_traces(sizes, 100, seed=9)) == 1.0


@pytest.mark.slow
def test_universal_turing_machines_from_eighteen_thousand_rows():
    sizes = (3, 2, 8)
    program = learn(turing_traces(sizes, 735, seed=0))
    assert program.n_rows <= 18_000
    assert histories(program, turing_traces(sizes, 200, seed=999, steps=(2, 30))) == 1.0
    beaver = turing_trace(turing_schema(*sizes), BUSY_BEAVER_3, [0] * 8, n_steps=30)
    assert beaver.source[1].count(1) == 6
    assert program.right([beaver])[0].all()


def test_the_library_writes_the_same_traces():
    program = programs.universal_dfa(3, 2, 3, style="one_hot")
    for trace in dfa_traces((3, 2, 3), 10, seed=0):
        table, word = trace.source
        (other,) = programs.traces(
            program, machines=[programs.DFA(table)], inputs=[[int(x) for x in word]]
        )
        np.testing.assert_array_equal(other.prompt, trace.prompt)
        np.testing.assert_array_equal(other.completion, trace.completion)


def test_the_rank_is_that_of_the_features_themselves():
    for traces in (
        list(dfa_traces(SMALL, 40, seed=3)),
        list(turing_traces((2, 2, 3), 20, seed=3, steps=(2, 8))),
    ):
        rows = rows_of_all(traces)
        first, second = pair_index(rows.queries.shape[1])
        integers = np.einsum("mp,ml->mpl", rows.grams[:, first, second], rows.queries)
        integers = integers.reshape(len(integers), -1)
        echelon = Echelon(integers.shape[1], next(primes()))
        echelon.absorb(integers)
        span = CoefficientSpan.of(traces)
        assert span.rank == ExactSpan.of(span).rank == echelon.rank
        dependent, independent = span.gap
        assert dependent < 1e-11
        assert independent > 1e-7


def test_the_exact_span_does_not_rest_on_the_rank_in_floating_point():
    span = CoefficientSpan.of(dfa_traces(SMALL, 40, seed=3))
    few = tuple(replace(basis, numbers=basis.numbers[:1]) for basis in span.bases)
    assert sum(basis.rank for basis in few) < span.rank
    exact = ExactSpan.of(replace(span, bases=few))
    assert exact.rank == span.rank
    rows = rows_of_all(dfa_traces(SMALL, 40, seed=9))
    assert exact.inside(rows).tolist() == span.inside(rows).tolist()


@pytest.mark.parametrize("n_traces", [30, 90])
def test_membership_is_that_of_the_whole_features(n_traces):
    span = CoefficientSpan.of(dfa_traces(SMALL, n_traces, seed=0))
    training = whole_features(rows_of_all(dfa_traces(SMALL, n_traces, seed=0)))
    fresh = rows_of_all(dfa_traces(SMALL, 60, seed=9))
    features = whole_features(fresh)
    gram = training @ training.T
    inverse = np.linalg.pinv(gram, rcond=1e-11, hermitian=True)
    rest = features - (features @ training.T) @ inverse @ training
    rest = np.linalg.norm(rest, axis=1)
    truth = np.where(rest < 1e-4 * np.linalg.norm(features, axis=1), "inside", "outside")
    assert {*truth} == ({"inside", "outside"} if n_traces == 30 else {*truth})
    assert span.inside(fresh).tolist() == truth.tolist()
    assert ExactSpan.of(span).inside(fresh).tolist() == truth.tolist()


def test_rows_inside_the_span_are_never_predicted_wrongly():
    sizes, fresh = (4, 4, 4), list(dfa_traces((4, 4, 4), 1200, seed=77))
    rows = rows_of_all(fresh)
    assert len(rows.queries) >= 10_000
    for n_traces, some_outside in ((200, True), (1000, False)):
        program = learn(dfa_traces(sizes, n_traces, seed=0))
        inside = program.span.inside(rows) == "inside"
        right = np.concatenate(program.right(fresh))
        assert right[inside].all()
        assert inside.sum() > 1000
        assert (right[~inside].sum() < (~inside).sum()) == some_outside


def test_a_tampered_label_makes_rows_inside_wrong():
    # All labels are used as they are: one of an independent row is changed, none contradicts it.
    traces = list(dfa_traces(SMALL, 60, seed=0))
    span = CoefficientSpan.of(traces)
    features = RowFeatures.of(traces)
    targets = features.targets.copy()
    chosen = span.bases[0].numbers
    targets[chosen[0]] += 1.0
    independent = np.sort(np.concatenate([basis.numbers for basis in span.bases]))
    rows = [(trace, row) for trace in traces for row in range(trace.n_rows)]
    some = []
    for n in independent:
        trace, row = rows[n]
        before = trace.tokens[: len(trace.prompt) + row]
        after = trace.completion[row : row + 1]
        some.append(Trace(trace.schema, before, after, labels=targets[n : n + 1]))
    program = learn(some)
    assert program.ridge == 0
    fresh = list(dfa_traces(SMALL, 200, seed=9))
    inside = program.span.inside(rows_of_all(fresh)) == "inside"
    assert not np.concatenate(program.right(fresh))[inside].all()


def test_what_training_never_had_is_outside_at_once():
    schema = dfa_schema(*SMALL)
    traces = [t for t in dfa_traces(SMALL, 200, seed=0) if 2 not in t.source[1]]
    span = CoefficientSpan.of(traces)
    fresh = [t for t in dfa_traces(SMALL, 200, seed=9) if t.source[1][0] == 2]
    rows = rows_of_all(fresh)
    assert schema.n_dims == rows.queries.shape[1]
    # From the second token on the letter has been seen as part of a pair.
    assert {*span.inside(rows).tolist()} == {"outside"}
    assert {*ExactSpan.of(span).inside(rows).tolist()} == {"outside"}


def test_a_span_grows():
    first, second = list(dfa_traces(SMALL, 20, seed=0)), list(dfa_traces(SMALL, 60, seed=1))
    grown, whole = CoefficientSpan.of(first).add(second), CoefficientSpan.of(first + second)
    assert grown.rank == whole.rank > CoefficientSpan.of(first).rank
    assert (grown.n_rows, grown.n_traces) == (whole.n_rows, 80)
    rows = rows_of_all(dfa_traces(SMALL, 50, seed=9))
    assert grown.inside(rows).tolist() == whole.inside(rows).tolist()


@pytest.mark.parametrize("n_traces", [12, 60])
def test_innovative_traces_are_those_whose_absence_shrinks_the_span(n_traces):
    traces = list(dfa_traces(SMALL, n_traces, seed=0))
    span = CoefficientSpan.of(traces)
    without = [CoefficientSpan.of(traces[:i] + traces[i + 1 :]).rank for i in range(n_traces)]
    assert innovative(span).tolist() == [i for i, rank in enumerate(without) if rank < span.rank]


@pytest.mark.parametrize(
    "change", [lambda t: flipped(t, 0.1), lambda t: noisy(t, 0.1)], ids=["flips", "noise"]
)
def test_labels_that_contradict_each_other(change):
    traces = list(dfa_traces(SMALL, 200, seed=0))
    program = learn(change(traces))
    assert "contradict" in program.outcome.sentence
    assert histories(program, dfa_traces(SMALL, 200, seed=9)) == 1.0


def test_labels_of_pure_noise_are_not_called_exact():
    traces = list(dfa_traces(SMALL, 60, seed=0))
    program = learn(noisy(traces, 3.0))
    assert program.ridge > 0
    assert "no consistent part" in program.outcome.sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda t: flipped(t, 0.02),
        lambda t: flipped(t, 0.1),
        lambda t: flipped(t, 0.3),
        lambda t: noisy(t, 0.1),
        lambda t: noisy(t, 0.3),
    ],
    ids=["flips 2 %", "flips 10 %", "flips 30 %", "sigma 0.1", "sigma 0.3"],
)
def test_noise_at_nine_thousand_rows(change):
    sizes = (4, 4, 4)
    program = learn(change(list(dfa_traces(sizes, 1000, seed=0))))
    assert histories(program, dfa_traces(sizes, 300, seed=999)) >= 0.99


def test_a_penalty_of_your_own_is_ridge_regression():
    traces = list(dfa_traces(SMALL, 30, seed=0))
    rows = rows_of_all(traces)
    features = whole_features(rows)
    penalty = 0.1 * np.mean(np.sum(features**2, axis=1))
    # The groups of tokens have their own mean squares: one group, one mean.
    groups = orthogonal_groups(rows.queries)
    program = learn(traces, ridge=0.1)
    for group in range(groups.max() + 1):
        some = features[groups == group]
        penalty = 0.1 * np.mean(np.sum(some**2, axis=1))
        kernel = some @ some.T + penalty * np.eye(len(some))
        fitted = some @ some.T @ np.linalg.solve(kernel, rows.targets[groups == group])
        outputs = program.predict(rows.grams, rows.queries)[groups == group]
        np.testing.assert_allclose(outputs, fitted, atol=1e-8)


@pytest.mark.parametrize("ridge", [-1.0, np.inf, "none"])
def test_impossible_penalties_are_refused(ridge):
    with pytest.raises(InvalidInput, match="ridge must be"):
        learn(dfa_traces(SMALL, 3, seed=0), ridge=ridge)


def test_no_traces_are_refused():
    with pytest.raises(InvalidInput, match="at least one trace"):
        learn_coefficients(dfa_schema(*SMALL), [])


def test_traces_of_different_widths_are_refused():
    traces = [*dfa_traces((2, 2, 2), 1, seed=0), *dfa_traces(SMALL, 1, seed=0)]
    with pytest.raises(InvalidInput, match="same width"):
        learn(traces)
