"""Ask a layer
===========

A black box answers sequences that we choose with d numbers each: all its heads are read out, biases
included.  The number of queries in the literature (arXiv 2608.03294) is for one number each.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyattn as pa

plt.rc("axes", titlelocation="left")
plt.rc("axes.spines", top=False, right=False)
OURS, OTHER = "#0b6e4f", "#b3541e"

rng = np.random.default_rng(0)
n_heads, rank = 3, 4
sizes, asked = [6, 8, 12, 16, 24, 32], []
for n_dims in sizes:
    wide = n_dims + 1  # one coordinate for the bias
    attn = rng.standard_normal((n_heads, wide, rank)) @ rng.standard_normal((n_heads, rank, wide))
    value = rng.standard_normal((n_heads, wide, n_dims))
    secret = pa.SoftmaxAttention(attn / n_dims, value / n_dims, bias=True)

    found = pa.learn_from_queries(secret, n_dims=n_dims, bias=True)
    asked.append(found.n_queries)
    same = pa.same_function(found.layer, secret, tolerance=1e-7)
    print(f"{n_dims} coordinates: {found.n_heads} heads, {found.n_queries} queries, same: {same}")

bound = [4 * n_heads * n_dims**2 - 2 * n_heads + 1 for n_dims in sizes]
figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
axes.loglog(sizes, np.multiply(asked, sizes), "o--", color=OURS, label="numbers answered, d each")
axes.loglog(sizes, bound, color=OTHER, label="4 H d² − 2H + 1, the literature: one number each")
axes.loglog(sizes, asked, "o-", color=OURS, label="queries until every head was known")
axes.set_xticks(sizes, sizes)
axes.minorticks_off()
axes.set(xlabel="coordinates of a token, d", title="Three heads of rank 4, read out")
axes.legend(frameon=False)
plt.savefig("ask_a_layer.png")
