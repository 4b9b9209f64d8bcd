"""Recover the heads of a softmax attention layer from random examples, and hear when it failed."""

import polyattn as pa

task = pa.data.planted_softmax(300, 4, 6, n_heads=3, logits=2.0, random_state=7)
found = pa.learn_softmax(task.X, task.Y)
print(found.outcome)
print(pa.match_heads(found.layer, task.layer))

noisy = pa.data.planted_softmax(300, 4, 6, n_heads=3, logits=2.0, noise=0.02, random_state=7)
found = pa.learn_softmax(noisy.X, noisy.Y, n_heads=3)
print(found.outcome)
print(f"noise {found.noise:.4f}, expected error of each attn {found.attn_error.round(4)}")

too_few = pa.learn_softmax(task.X, task.Y, n_heads=2, method="moments")
print(too_few.outcome)
