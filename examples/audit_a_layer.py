"""Audit a layer that was trained
==============================

Gradient descent on the heads stops somewhere. An audit says how far that is from the best there
is, and its certificate travels as a file that whoever has the data can check.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyattn as pa

plt.rc("axes", titlelocation="left")
plt.rc("axes.spines", top=False, right=False)

task = pa.data.planted(400, 20, 3, mode="last", noise=0.02, random_state=0)
grams, queries = np.swapaxes(task.X, 1, 2) @ task.X, task.X[:, -1]
steps = range(0, 1501, 50)

figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
for seed, colour in enumerate(("#b3541e", "#35569c", "#8a3b78")):
    A, V = np.random.default_rng(seed).standard_normal((2, 3, 3)) / 2
    gaps = []
    for step in range(steps[-1] + 1):
        if step in steps:
            audit = pa.audit(pa.LinearAttention(A[None], V[None]), task.X, task.Y)
            gaps.append(audit.gap)
        seen = np.einsum("njk,lk,nl->nj", grams, A, queries)
        residual = (seen @ V - task.Y) / len(task.Y)
        slope = np.einsum("nl,nj,njk->lk", queries, residual @ V.T, grams)
        A, V = A - 0.3 * slope, V - 0.3 * seen.T @ residual
    axes.semilogy(steps, gaps, color=colour, label=f"start {seed + 1}")
print(audit.sentence)
audit.certificate.save("certificate.json")
print("verified:", pa.verify(pa.load("certificate.json"), task.X))

axes.set_title("What training leaves to the global optimum")
axes.set(xlabel="steps of gradient descent", ylabel="risk above the optimum")
axes.legend(frameon=False)
plt.savefig("audit_a_layer.png")
