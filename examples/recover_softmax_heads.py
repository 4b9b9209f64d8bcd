"""Recover softmax heads
=====================

The heads of a softmax layer, found from random examples: the very matrices, not only a function
that predicts as well. With too few heads the outcome says that it failed.
"""

import matplotlib.pyplot as plt

import polyattn as pa

task = pa.data.planted_softmax(300, 4, 6, n_heads=3, logits=2.0, random_state=7)
found = pa.learn_softmax(task.X, task.Y)
print(found.outcome)
match = pa.match_heads(found.layer, task.layer)
print(match)

too_few = pa.learn_softmax(task.X, task.Y, n_heads=1, method="moments")
print(too_few.outcome)

figure, axes = plt.subplots(2, 3, figsize=(6.4, 4.2), layout="constrained")
for head, at in enumerate(match.order):
    above, below = axes[:, head]
    above.imshow(task.layer.attn[head], cmap="BrBG", vmin=-1, vmax=1)
    below.imshow(found.layer.attn[at], cmap="BrBG", vmin=-1, vmax=1)
    above.set(xticks=[], yticks=[], title=f"head {head + 1}")
    below.set(xticks=[], yticks=[], xlabel=f"error {match.attn_errors[head]:.0e}")
axes[0, 0].set_ylabel("planted")
axes[1, 0].set_ylabel("found")
figure.suptitle("Attention matrices, recovered from 300 examples", x=0.02, ha="left")
plt.savefig("recover_softmax_heads.png")
