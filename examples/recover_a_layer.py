"""Recover a layer
===============

Plant an attention layer, fit, and get it back: right at ten times the training length, too.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyattn as pa

plt.rc("axes", titlelocation="left")
plt.rc("axes.spines", top=False, right=False)
OURS, OTHER, SOFT = "#0b6e4f", "#b3541e", "#5c6675"

task = pa.data.planted(n_sequences=1000, n_tokens=30, n_dims=4, n_heads=2, mode="causal")
result = pa.fit(task.X, task.Y, mode="causal")

print(result.outcome)
print(result.heads.sentence)
print(f"distance to the planted layer: {pa.coefficient_distance(result.layer, task.layer):.1e}")

longer = pa.data.random_sequences(50, 300, 4, random_state=1)
truth, found = task.layer(longer), result.layer(longer)
error = np.linalg.norm(found - truth, axis=2).max(axis=0)  # the worst of 50, at each position
print(f"largest error on longer sequences: {error.max():.1e}")

figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
axes.semilogy(np.linalg.norm(truth, axis=2).mean(axis=0), color=OTHER, label="size of the output")
axes.semilogy(error, color=OURS, label="largest error of the fitted layer")
axes.axvline(30, color=SOFT, linewidth=0.8, linestyle=":")
axes.text(34, 1e-6, "training sequences end here", color=SOFT, fontsize=9)
axes.set_title("Fitted on 30 tokens, right on 300")
axes.set_xlabel("position in the sequence")
axes.legend(frameon=False, loc="center right")
plt.savefig("recover_a_layer.png")
