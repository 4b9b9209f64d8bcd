"""Do the data determine the layer?  Associative memory with and without generic keys."""

import numpy as np

import polyattn as pa

unitary = pa.data.associative_memory(4096, 4, unitary=1.0, random_state=0)
certificate = pa.certify(unitary.X)
print(certificate)

# Two layers that explain all the data, the true one among them, and an input that tells them apart.
witness = certificate.witness(unitary.layer)
print(witness.sentence)
print(np.round(witness.input, 2))

# Forty sequences more, one for each missing dimension, settle it.
advice = certificate.next_data()
print(advice.sentence)
enough = pa.certify([*unitary.X, *advice.sequences])
print(enough.verdict, f"lambda_min {enough.lambda_min:.1e}")

# How far two layers of training risk 1e-6 can be apart, input by input.
print(np.round(enough.bound(unitary.X[:3], risk=1e-6), 4), "on inputs like the data,")
print(np.round(enough.bound([witness.input], risk=1e-6), 4), "on the witness.")
