"""Audit a layer that came from somewhere else: how good it is, and what is certain about it."""

import numpy as np

import polyattn as pa

rng = np.random.default_rng(0)
task = pa.data.planted(400, 20, 3, mode="causal", random_state=0)
Y = task.Y + 0.1 * rng.standard_normal(np.shape(task.Y))

# Somebody stopped training early.
early = pa.LinearAttention(0.98 * task.layer.attn, task.layer.value, "causal")
audit = pa.audit(early, task.X, Y)
print(audit.sentence)
print(f"risk {audit.risk:.4f}, the best there is {audit.optimal_risk:.4f}")

# The certificate travels as a file; whoever has the data can check it.
audit.certificate.save("certificate.json")
print("verified:", pa.verify(pa.load("certificate.json"), task.X))
print("for other data:", pa.verify(pa.load("certificate.json"), task.X[:-1]))
