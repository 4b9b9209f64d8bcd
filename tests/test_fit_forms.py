"""Fitting layers of every form: planted layers come back, by every solver, from every source."""

import numpy as np
import pytest

import polyattn as pa
from form_cases import CASES
from polyattn.reference import forms as reference

# One kind of data is enough here: each form by itself, and twenty random combinations.
FORMS = {case.name: case for case in CASES if case.kind == "ragged"}

# Two decays over a window of two tokens: which scale a head has changes little, and the fewest
# heads are looked for scale by scale.
MORE_DECAYS_THAN_TOKENS = ("random-6", "random-10")


def draw(case, rng, n_sequences, longest=9):
    """Sequences of different lengths, and contexts where the form has one."""
    lengths = rng.integers(2, longest, n_sequences)
    X = [rng.standard_normal((length, case.n_dims)) for length in lengths]
    if case.n_context_dims is None:
        return X, None
    extra = 0 if case.form.mode == "causal" else 2
    return X, [rng.standard_normal((length + extra, case.n_context_dims)) for length in lengths]


def outputs(case, heads, X, Z):
    """By literal loops, one array (rows, e) for each sequence."""
    contexts = [None] * len(X) if Z is None else Z
    return [
        np.atleast_2d(reference.forward(X=x, form=case.plain, context=z, **heads))
        for x, z in zip(X, contexts, strict=True)
    ]


def targets(case, rows):
    """Targets as ``fit`` takes them."""
    return np.concatenate(rows) if case.form.mode == "last" else rows


@pytest.fixture(params=FORMS.values(), ids=FORMS)
def task(request):
    case, rng = request.param, np.random.default_rng(5)
    heads = case.heads()
    layout = case.layout
    per_sequence = 1 if case.form.mode == "last" else 5
    n_sequences = max(12, 3 * layout.n_features // per_sequence)
    X, Z = draw(case, rng, n_sequences)
    fresh = draw(case, rng, 6, longest=20)
    truth = [targets(case, outputs(case, heads, *given)) for given in ((X, Z), fresh)]
    return case, X, Z, truth[0], fresh, truth[1]


def close(found, wanted, tolerance=1e-9):
    found, wanted = (np.concatenate([np.atleast_2d(y) for y in each]) for each in (found, wanted))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def test_a_planted_layer_comes_back(task):
    case, X, Z, Y, (fresh, fresh_context), truth = task
    result = pa.fit(X, Y, form=case.form, context=Z)
    assert result.form == case.form
    assert result.risk <= 1e-20 * max(1.0, np.max(np.abs(np.concatenate(Y))) ** 2)
    close(result.predict(fresh, context=fresh_context), truth)
    layer = result.layer
    given = (fresh,) if fresh_context is None else (fresh, fresh_context)
    close(layer(*given), truth, 1e-7)
    assert layer.n_heads <= 2 or case.name in MORE_DECAYS_THAN_TOKENS


def test_solvers_agree(task):
    case, X, Z, Y, (fresh, fresh_context), truth = task
    for solver in ("primal", "direct", "dual", "iterative"):
        result = pa.fit(X, Y, form=case.form, context=Z, solver=solver)
        close(result.predict(fresh, context=fresh_context), truth, 1e-6)


def test_sums_of_parts_are_those_of_the_whole(task):
    case, X, Z, Y, (fresh, fresh_context), truth = task
    n_outputs = 2
    for kind in (pa.Moments, pa.TriangularFactor):
        parts = []
        for some in (slice(0, 5), slice(5, None)):
            empty = kind(case.n_dims, n_outputs, form=case.form, n_context_dims=case.n_context_dims)
            context = None if Z is None else Z[some]
            parts.append(empty.update(X[some], Y[some], context=context))
        result = pa.fit(statistics=parts[0] + parts[1])
        close(result.predict(fresh, context=fresh_context), truth, 1e-6)
