"""Planted tasks for tests of ``fit``, and what a layer does by the reference."""

import numpy as np

import planted
import polyattn as pa
from planted import EPS
from polyattn.form.pairs import n_features


def planted_layer(d, e, n_heads, mode, seed=0):
    """A random layer with parameters of order one."""
    rng = np.random.default_rng([seed, d, e, n_heads])
    attn, value = rng.standard_normal((n_heads, d, d)), rng.standard_normal((n_heads, d, e))
    return pa.LinearAttention(attn / d, value / d, mode)


def ragged(d, mode, seed, drop=0):
    """Sequences of 1 to 2 d + 3 tokens, twice as many rows as features (``drop`` coordinates)."""
    rng = np.random.default_rng([seed, d])
    wanted = 2 * n_features(d) + 10
    sequences, rows = [], 0
    while rows < wanted:
        length = int(rng.integers(1, 2 * d + 4))
        sequences.append(rng.standard_normal((length, d - drop)))
        # Queries beyond d span no more when they share their Gram.
        rows += {"last": 1, "causal": length, "full": min(length, d)}[mode]
    return sequences


def assert_same_on_fresh_data(result, truth, drop=0):
    """Equal outputs to 1e-9 on sequences that were never seen, which the condition allows."""
    assert result.outcome.name == "unique"
    assert result.condition * EPS * result.n_features < 1e-9
    width = truth.n_dims + drop
    fresh = ragged(width, "last", seed=99, drop=drop)[:50]
    assert planted.relative_error(rows_of(result.predict(fresh)), rows_of(truth(fresh))) < 1e-9
    assert planted.relative_error(result.coef, truth.coef) < 1e-9


def rows_of(outputs):
    """Outputs of any form as (rows, e)."""
    parts = [np.reshape(part, (-1, np.shape(part)[-1])) for part in outputs]
    return np.concatenate(parts)


def mean_power(Y):
    return float(np.mean(np.sum(rows_of(Y) ** 2, axis=1)))


def risk_of(outputs, Y):
    """The mean over rows of the squared error."""
    return float(np.mean(np.sum((rows_of(outputs) - rows_of(Y)) ** 2, axis=1)))


def noisy(Y, noise):
    """Targets with normal noise, in the form of Y."""
    rng = np.random.default_rng(5)
    if isinstance(Y, list):
        return [y + noise * rng.standard_normal(y.shape) for y in Y]
    return Y + noise * rng.standard_normal(Y.shape)


def predict_by(coef, X, mode):
    """Outputs of coefficients, by the reference."""
    from polyattn.reference import erm

    return erm.predict(coef, list(X), mode)


def objective(coef, X, Y, ridge):
    """sum ||y - F(X)||^2 + ridge ||T||_F^2, by the reference."""
    from polyattn.reference import features

    squares = np.sum((rows_of(Y) - predict_by(coef, X, "last")) ** 2)
    return float(squares + ridge * np.sum(features.unfold(coef) ** 2))


def descend(torch, X, Y, mode, n_heads, method, seed):
    """The risk that a torch optimiser reaches over layers with ``n_heads`` heads."""
    generator = torch.Generator().manual_seed(seed)
    X, Y = torch.as_tensor(X), torch.as_tensor(Y)
    d, e = X.shape[-1], Y.shape[-1]
    make = {"generator": generator, "dtype": torch.float64}
    attn = (0.5 * torch.randn(n_heads, d, d, **make)).requires_grad_()
    value = (0.5 * torch.randn(n_heads, d, e, **make)).requires_grad_()
    mask = torch.tril(torch.ones(X.shape[1], X.shape[1], dtype=torch.float64))

    def loss():
        scores = torch.einsum("ntl,hlk,nsk->nhts", X, attn, X)
        scores = scores * mask if mode == "causal" else scores
        outputs = torch.einsum("nhts,nsj,hja->nta", scores, X, value)
        outputs = outputs[:, -1] if mode == "last" else outputs
        return ((outputs - Y) ** 2).sum(-1).mean()

    def closure():
        optimiser.zero_grad()
        value_now = loss()
        value_now.backward()
        return value_now

    if method == "lbfgs":
        optimiser = torch.optim.LBFGS(
            [attn, value], max_iter=500, line_search_fn="strong_wolfe", tolerance_change=1e-14
        )
        optimiser.step(closure)
    else:
        optimiser = torch.optim.Adam([attn, value], lr=0.01)
        for _ in range(400):
            optimiser.step(closure)
    return float(loss().detach())
