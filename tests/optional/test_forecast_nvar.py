"""Forecasts beside reservoirpy's NVAR: the same optimum where features are, and valid times."""

import numpy as np
import pytest

import polyattn as pa

nodes = pytest.importorskip("reservoirpy.nodes", reason="reservoirpy is not installed")


@pytest.fixture(scope="module")
def lorenz():
    series = pa.data.lorenz(900, random_state=0)
    return (series - series[:600].mean(axis=0)) / series[:600].std(axis=0)


def nvar_rows(tokens, delay):
    return nodes.NVAR(delay=delay, order=2).run(tokens)[delay - 1 :]


def test_one_layer_has_the_features_and_the_optimum_of_an_nvar():
    """Tokens (1, x_t, x_(t-1)), of which the 1 alone asks."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((300, 2)), rng.standard_normal((299, 2))
    tokens = np.concatenate([np.ones((298, 1)), X[1:-1], X[:-2]], axis=1)[:, None]
    ours = pa.fit(tokens, Y[1:], form=pa.Form(window=1, query=[0]))
    rows = nvar_rows(X[:-1], 2)
    readout = nodes.Ridge(ridge=0.0)
    readout.fit(rows, Y[1:])
    assert ours.n_features == rows.shape[1] + 1
    np.testing.assert_allclose(ours.predict(tokens), readout.run(rows), atol=1e-10)
    # Negative control: with a ridge that only one of them has, they differ.
    shrunk = pa.fit(tokens, Y[1:], form=pa.Form(window=1, query=[0]), ridge=50.0)
    assert np.abs(shrunk.predict(tokens) - readout.run(rows)).max() > 1e-3


def test_rollouts_of_both_agree_while_both_are_right(lorenz):
    known, truth = lorenz[:600], lorenz[600:]
    ahead = pa.forecast(known, 60)
    rows = nvar_rows(known[:-1], 2)
    readout = nodes.Ridge(ridge=1e-6)
    readout.fit(rows, np.diff(known, axis=0)[1:])
    node, token, theirs = nodes.NVAR(delay=2, order=2), known[-1], []
    node.run(known[-2:-1])
    for _ in range(60):
        token = token + readout.run(node.run(token[None]))[0]
        theirs.append(token)
    np.testing.assert_allclose(ahead.values, truth[:60], atol=0.02)
    np.testing.assert_allclose(np.array(theirs), truth[:60], atol=0.05)
    assert ahead.valid_steps[0] == 60
