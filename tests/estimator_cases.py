"""Sequences with targets and labels that linear attention can learn, for the estimators."""

import numpy as np

import polyattn as pa

N, LENGTH, DIMS = 90, 5, 3


def tokens(seed=0, n=N):
    return np.random.default_rng(seed).standard_normal((n, LENGTH, DIMS))


def planted_numbers(mode, n_outputs=1):
    """Outputs of a planted layer with some noise, without an output axis where there is one."""
    X = tokens()
    Y = pa.data.random_layer(DIMS, n_outputs, 2, mode, random_state=1)(X)
    Y = Y + 0.05 * np.random.default_rng(2).standard_normal(Y.shape)
    return X, Y[..., 0] if n_outputs == 1 else Y


def planted_labels(mode, names):
    """The class whose planted output is the largest."""
    X, Y = planted_numbers(mode, len(names))
    return X, np.array(names)[np.argmax(Y, axis=-1)]


REGRESSOR, CLASSIFIER = pa.LinearAttentionRegressor, pa.LinearAttentionClassifier
