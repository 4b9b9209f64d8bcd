"""Fit data that never are in memory together: statistics that stream, merge, save and load."""

import tempfile
from pathlib import Path

import polyattn as pa

layer = pa.data.random_layer(n_dims=5, n_outputs=2, mode="full")

with tempfile.TemporaryDirectory() as folder:
    for shard in range(3):  # three workers, each with its own shard, in any order
        stats = pa.Moments(n_dims=5, n_outputs=2, mode="full")
        for batch in range(4):
            X = pa.data.random_sequences(50, (5, 40), 5, random_state=10 * shard + batch)
            stats.update(X, layer(X))
        stats.save(Path(folder) / f"shard-{shard}.safetensors")

    first, *others = (pa.Moments.load(path) for path in sorted(Path(folder).iterdir()))

merged = sum(others, start=first)
result = pa.fit(statistics=merged)
print(merged)
print(result.outcome)
print(f"distance to the true layer: {pa.coefficient_distance(result.layer, layer):.1e}")
