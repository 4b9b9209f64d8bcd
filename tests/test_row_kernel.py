"""RowKernel: the curvature of log-loss inverted by rows, and fits of few rows that rest on it."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.features.products import features
from polyattn.solve import newton, row_kernel
from polyattn.solve.feature_passes import FeaturePasses
from polyattn.solve.row_kernel import RowKernel
from polyattn.stats.rows import Rows

FORMS = {
    "plain": pa.Form(),
    "constants": pa.Form(mode="causal", intercept=True, skip=True, decay=0.5),
}


def few_rows(name):
    X = np.random.default_rng(3).standard_normal((6, 2, 6))
    return FeaturePasses(Rows.build(X, None, FORMS[name]))


@pytest.mark.parametrize("name", FORMS)
def test_the_inverse_is_that_of_the_curvature(name):
    passes = few_rows(name)
    rng = np.random.default_rng(0)
    curvatures = rng.uniform(0.0, 1.0, passes.rows.n_rows)
    curvatures[2] = 0.0
    penalty = 0.3
    (block,) = passes.rows.blocks()
    layout = passes.rows.layout
    phi = features(layout, block.sums, block.queries) / layout.feature_weights[:, None]
    dense = (phi * curvatures) @ phi.T + penalty * np.eye(len(phi))
    rhs = rng.standard_normal((len(phi), 2))
    kernel = RowKernel.of(passes, curvatures, penalty)
    np.testing.assert_allclose(
        kernel.inverse(curvatures)(rhs), np.linalg.solve(dense, rhs), rtol=1e-9, atol=1e-9
    )


def test_many_rows_and_small_penalties_have_no_kernel(monkeypatch):
    passes, curvatures = few_rows("plain"), np.ones(6)
    assert RowKernel.of(passes, curvatures, 1.0) is not None
    assert RowKernel.of(passes, curvatures, 0.0) is None
    assert RowKernel.of(passes, curvatures, 1e-12) is None
    monkeypatch.setattr(row_kernel, "MOST_ROWS", 5)
    assert RowKernel.of(passes, curvatures, 1.0) is None


@pytest.mark.parametrize("n_dims", [9, 20])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_few_rows_take_few_products(n_dims, n_classes, monkeypatch):
    """Features up to and beyond those whose Gram matrix is factored; also rows of no weight."""
    counts, step = [], newton._newton_step

    def counted(*arguments):
        found, count = step(*arguments)
        counts.append(count)
        return found, count

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 5, n_dims)), rng.integers(0, n_classes, 30)
    weights = np.append(np.zeros(2), rng.uniform(0.5, 2.0, 28))
    monkeypatch.setattr(newton, "_newton_step", counted)
    result = pa.fit(X, y, loss="logistic", bias=True, ridge=0.1, sample_weight=np.roll(weights, 5))
    assert result.outcome.name == "regularised"
    assert result.objective_bound <= 1e-12
    assert sum(counts) < 200
