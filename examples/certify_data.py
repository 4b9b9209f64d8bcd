"""Do the data determine the layer?
================================

Associative memory with unitary keys leaves forty directions of the layer unseen, however many
sequences there are. Two layers then explain all of them, and a witness tells the two apart.
"""

import matplotlib.pyplot as plt
import numpy as np

import polyattn as pa

plt.rc("axes", titlelocation="left")
plt.rc("axes.spines", top=False, right=False)
COLOURS = {1.0: "#b3541e", 0.95: "#35569c", 0.0: "#0b6e4f"}

figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
for share, colour in COLOURS.items():
    task = pa.data.associative_memory(4096, 4, unitary=share, random_state=0)
    certificate = pa.certify(task.X)
    print(f"{share:.0%} unitary keys:", certificate)

    spectrum = pa.Moments(n_dims=8, mode="last").update(task.X).spectrum()[::-1]
    words = certificate.verdict.replace("_", " ")
    axes.semilogy(np.maximum(spectrum, 1e-18), color=colour, label=f"{share:.0%} unitary: {words}")

    if not certificate.identifiable:
        witness = certificate.witness(task.layer)
        print(witness.sentence)
        print(np.round(witness.input, 2))

axes.set_title("What 4096 sequences show of 288 coefficients")
axes.set_xlabel("eigenvalues of the second moment of the features, in order")
axes.set_ylabel("size")
axes.legend(frameon=False, loc="center left")
plt.savefig("certify_data.png")
