"""Tasks with class numbers, and their features and objectives by plain numpy."""

import numpy as np

import polyattn as pa
from polyattn.reference import erm
from polyattn.reference.features import norm_weights


def task(n_sequences, n_tokens, n_dims, n_classes, seed=0, signal=2.0, mode="last"):
    """Tokens, and class numbers drawn with the chances of a random layer."""
    rng = np.random.default_rng([seed, n_sequences, n_dims, n_classes])
    X = rng.standard_normal((n_sequences, n_tokens, n_dims))
    layer = pa.data.random_layer(n_dims, n_classes, 2, mode, random_state=seed)
    outputs = layer(X)
    outputs = signal * outputs / outputs.std()
    return X, np.argmax(outputs + rng.gumbel(size=outputs.shape), axis=-1)


def design(X, mode="last"):
    """Features (rows, p) in the coordinates of the norm."""
    return erm.design(list(X), mode) / norm_weights(X[0].shape[1])


def theta_of(result):
    """Coefficients (p, e) in the coordinates of the norm."""
    return result.layout.as_theta(result.coef)


def objective(result, phi, labels, weights=None):
    """Log-loss plus penalty of a result by numpy's logaddexp alone."""
    outputs = phi @ theta_of(result)
    if outputs.shape[1] == 1:
        outputs = np.concatenate([np.zeros_like(outputs), outputs], axis=1)
    losses = np.logaddexp.reduce(outputs, axis=1) - outputs[np.arange(len(labels)), labels]
    total = losses.sum() if weights is None else losses @ weights
    return total + result.ridge * np.sum(theta_of(result) ** 2)
