"""Error bounds, input by input
============================

However a layer was found: if its training risk is known, the certificate bounds how far it is
from any other of that risk, on every new input. No pair of layers can break the bound.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyattn as pa

plt.rc("axes", titlelocation="left")
plt.rc("axes.spines", top=False, right=False)
OURS, SOFT = "#0b6e4f", "#5c6675"

task = pa.data.planted(500, 10, 3, mode="last", random_state=0)
certificate = pa.certify(task.X)
print(certificate)

rng = np.random.default_rng(1)
new = [scale * rng.standard_normal((10, 3)) / 3 for scale in np.geomspace(0.3, 6, 200)]
attn, value = task.layer.attn, task.layer.value

figure, axes = plt.subplots(figsize=(4.8, 4.2), layout="constrained")
for _ in range(20):  # layers that somebody found, near the truth
    other = pa.LinearAttention(attn + 0.01 * rng.standard_normal(attn.shape), value)
    risk = np.mean(np.sum((other(task.X) - task.Y) ** 2, axis=1))
    error = np.linalg.norm(other(new) - task.layer(new), axis=1)
    bound = certificate.bound(new, risk=risk)
    axes.loglog(bound, error, ".", color=OURS, markersize=2.5, alpha=0.5)
print(f"the last layer: risk {risk:.1e}, error at most {np.max(error / bound):.2f} of its bound")

axes.axline((1e-3, 1e-3), (1, 1), color=SOFT, linewidth=1)
axes.text(3e-4, 8, "no layer can be above the line", color=SOFT, fontsize=9)
axes.set_title("20 layers on 200 inputs, near and far")
axes.set_xlabel("bound by the certificate")
axes.set_ylabel("true distance")
plt.savefig("error_bounds.png")
