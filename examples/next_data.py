"""What to collect next
====================

Tokens that lie in a plane cannot determine a layer. Of a pool of candidates the certificate says
which to take, and these settle the matter more firmly than as many taken at random.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyattn as pa

plt.rc("axes", titlelocation="left")
plt.rc("axes.spines", top=False, right=False)
OURS, OTHER = "#0b6e4f", "#b3541e"

rng = np.random.default_rng(0)
plane = rng.standard_normal((300, 6, 2)) @ rng.standard_normal((2, 3))
pool = rng.standard_normal((400, 6, 3))
certificate = pa.certify(plane)
print(certificate)

advice = certificate.next_data(pool, n_sequences=40)
print(f"the rank grows from {certificate.rank} to {advice.ranks[-1]} of {certificate.dimension}")

ways = {"as advised": (advice.sequences, OURS), "at random": (pool[:40], OTHER)}
figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
for label, (sequences, colour) in ways.items():
    smallest = []
    for n_more in range(1, 41):
        grown = pa.certify([*plane, *sequences[:n_more]])
        smallest.append(grown.lambda_min if grown.identifiable else np.nan)
    print(f"{label}: the layer is determined with {np.isnan(smallest).sum() + 1} sequences more")
    axes.semilogy(range(1, 41), smallest, ".-", color=colour, label=label)
axes.set_title("How firmly the data determine the layer, once they do")
axes.set_xlabel("sequences taken from a pool of 400")
axes.set_ylabel("smallest eigenvalue")
axes.set_xlim(0, 41)
axes.legend(frameon=False)
plt.savefig("next_data.png")
