"""Sequences in scikit-learn
=========================

Sequences of different lengths in cross-validation, and a ridge chosen by leave-one-out: exact
errors for the whole grid from one factorisation, checked here against data held out.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import cross_val_score

import polyattn as pa

plt.rc("axes", titlelocation="left")
plt.rc("axes.spines", top=False, right=False)
OURS, OTHER, SOFT = "#0b6e4f", "#b3541e", "#5c6675"

rng = np.random.default_rng(0)
X = [rng.standard_normal((rng.integers(5, 30), 4)) / 3 for _ in range(450)]
energy = np.array([np.sum(x**2, axis=0) for x in X])  # per coordinate
y = energy @ [1.0, -2.0, 0.5, 0.0] + 0.5 * rng.standard_normal(len(X))

regressor = pa.LinearAttentionRegressor(bias=True, ridge="loo")
print("R^2 in cross-validation:", cross_val_score(regressor, X, y, cv=3).round(3))
labels = np.where(y > np.median(y), "strong", "weak")
print("accuracy:", cross_val_score(pa.LinearAttentionClassifier(), X, labels, cv=3).round(3))

grid = np.logspace(-3, 4, 15)
path = pa.fit(X[:150], y[:150], bias=True, ridge="loo", ridge_grid=grid).ridge_path
fits = [pa.fit(X[:150], y[:150], bias=True, ridge=ridge) for ridge in grid]
held_out = [np.mean((fitted.predict(X[150:])[:, 0] - y[150:]) ** 2) for fitted in fits]

figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
axes.semilogx(grid, path.errors, color=OURS, label="leave-one-out")
axes.semilogx(grid, held_out, color=OTHER, label="300 sequences held out")
axes.axvline(path.best, color=SOFT, linewidth=0.8, linestyle=":")
axes.text(path.best, max(held_out), " chosen", color=SOFT, fontsize=9, va="top")
axes.set(title="The error for every ridge", xlabel="ridge", ylabel="mean squared error")
axes.legend(frameon=False)
plt.savefig("scikit_learn.png")
