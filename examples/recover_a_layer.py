"""Plant an attention layer, fit, and get it back: the paper's task in ten lines."""

import numpy as np

import polyattn as pa

task = pa.data.planted(n_sequences=1000, n_tokens=30, n_dims=4, n_heads=2, mode="causal")
result = pa.fit(task.X, task.Y, mode="causal")

print(result.outcome)
print(result.heads.sentence)
print(f"distance to the planted layer: {pa.coefficient_distance(result.layer, task.layer):.1e}")

longer = pa.data.random_sequences(10, 300, 4, random_state=1)  # ten times the training length
error = np.abs(result.layer(longer) - task.layer(longer)).max()
print(f"largest error on longer sequences: {error:.1e}")
