"""Stream and merge
================

Data that never are in memory together: three workers keep statistics of their own shards and
save them. Their sum is fitted as if all data had been in one place.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyattn as pa

plt.rc("axes", titlelocation="left")
plt.rc("axes.spines", top=False, right=False)
COLOURS, OURS = ("#b3541e", "#35569c", "#8a3b78"), "#0b6e4f"

layer = pa.data.random_layer(n_dims=5, n_outputs=2, mode="full")
figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
for shard, colour in enumerate(COLOURS):
    rng = np.random.default_rng(shard)
    stats, seen, distances = pa.Moments(n_dims=5, n_outputs=2, mode="full"), [], []
    for _ in range(20):
        X = rng.standard_normal((20, 10, 5)) / 3
        stats.update(X, layer(X) + 0.1 * rng.standard_normal((20, 10, 2)))
        seen.append(stats.n_sequences)
        distances.append(np.linalg.norm(pa.fit(statistics=stats).coef - layer.coef))
    axes.loglog(seen, distances, color=colour, label=f"worker {shard + 1} alone")
    stats.save(f"shard-{shard}.safetensors")

first, *others = (pa.Moments.load(f"shard-{shard}.safetensors") for shard in range(3))
merged = sum(others, start=first)
result = pa.fit(statistics=merged)
print(merged, result.outcome, sep="\n")
distance = np.linalg.norm(result.coef - layer.coef)
axes.loglog(merged.n_sequences, distance, "o", color=OURS, label="merged")
axes.set(title="Fitted after every batch", xlabel="sequences", ylabel="distance to the true layer")
axes.legend(frameon=False)
plt.savefig("stream_and_merge.png")
