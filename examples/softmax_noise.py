"""Softmax heads from noisy examples
=================================

With noise no head is exact. The error bars that come with the heads are the Cramér–Rao bound,
the least that any unbiased method could have, and the true errors follow them.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyattn as pa

plt.rc("axes", titlelocation="left")
plt.rc("axes.spines", top=False, right=False)
OURS, SOFT = "#0b6e4f", "#5c6675"

levels = np.geomspace(1e-3, 0.2, 5)
figure, axes = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
for seed, noise in enumerate(levels):
    task = pa.data.planted_softmax(200, 4, 6, n_heads=2, noise=noise, random_state=seed)
    found = pa.learn_softmax(task.X, task.Y, n_heads=2)
    match = pa.match_heads(found.layer, task.layer)
    expected = found.attn_error[match.order]
    print(f"noise {noise:.4f}, estimated {found.noise:.4f}: {found.outcome.name}")
    axes.loglog([noise] * 2, match.attn_errors, "o", color=OURS, alpha=0.8)
    axes.loglog([noise] * 2, expected, "_", color=SOFT, markersize=16)
print(found.outcome)

axes.plot([], [], "o", color=OURS, label="true error of a head")
axes.plot([], [], "_", color=SOFT, markersize=16, label="its error bar")
axes.set(title="Attention matrices from 200 noisy examples", xlabel="noise of the targets")
axes.set_ylabel("relative error")
axes.legend(frameon=False)
plt.savefig("softmax_noise.png")
