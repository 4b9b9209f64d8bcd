"""Sequences of different lengths in scikit-learn: cross-validation, a grid, a classifier."""

import numpy as np
from sklearn.model_selection import GridSearchCV, cross_val_score

import polyattn as pa

rng = np.random.default_rng(0)
X = [rng.standard_normal((rng.integers(5, 30), 3)) / 3 for _ in range(300)]
energy = np.array([np.sum(x**2, axis=0) for x in X])  # per coordinate
y = energy @ [1.0, -2.0, 0.5] + 0.05 * rng.standard_normal(len(X))

regressor = pa.LinearAttentionRegressor(bias=True, ridge="loo")
print("R^2 in cross-validation:", cross_val_score(regressor, X, y, cv=3).round(3))

search = GridSearchCV(regressor, {"bias": [True, False]}, cv=3).fit(X, y)
print("chosen:", search.best_params_)

labels = np.where(y > np.median(y), "strong", "weak")
classifier = pa.LinearAttentionClassifier()
print("accuracy:", cross_val_score(classifier, X, labels, cv=3).round(3))
