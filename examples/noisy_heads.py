"""How many heads do noisy data support?
=====================================

The optimum over any number of heads follows the noise. Fewer heads average it away, too few
miss the layer, and ``n_heads="auto"`` finds the number in between.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyattn as pa

plt.rc("axes", titlelocation="left")
plt.rc("axes.spines", top=False, right=False)
OURS, OTHER = "#0b6e4f", "#b3541e"

task = pa.data.planted(1000, 12, 3, n_heads=2, mode="last", noise=0.02, random_state=3)
optimum = pa.fit(task.X, task.Y)
print(f"optimum over any number of heads: risk {optimum.risk:.6f}")

fits = {}
for n_heads in (1, 2, 3):
    fits[f"H = {n_heads}"] = limited = pa.fit(task.X, task.Y, n_heads=n_heads)
    print(f"best with {n_heads}: risk {limited.risk:.6f}, gap to the optimum {limited.gap:.1e}")
fits["any number"] = optimum

chosen = pa.fit(task.X, task.Y, n_heads="auto").layer.n_heads
print(f"heads that the noise supports: {chosen}")

figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
for name, fitted in fits.items():
    distance = np.linalg.norm(fitted.coef - task.layer.coef)
    axes.bar(name, distance, color=OURS if name == f"H = {chosen}" else OTHER, width=0.6)
    axes.text(name, distance, f"{distance:.3f}", ha="center", va="bottom", fontsize=9)
axes.set_yscale("log")
axes.set(ylim=(0.02, 1.3), yticks=[])
axes.minorticks_off()
axes.set_title(f"Two heads were planted; {chosen} were chosen (green)")
axes.set(xlabel="heads allowed", ylabel="distance to the truth")
plt.savefig("noisy_heads.png")
