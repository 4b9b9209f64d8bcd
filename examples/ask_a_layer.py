"""Read all heads out of a black box that answers chosen sequences, biases included."""

import numpy as np

import polyattn as pa

rng = np.random.default_rng(0)
n_heads, n_dims, rank = 3, 12, 4
attn = rng.standard_normal((n_heads, n_dims + 1, rank)) @ rng.standard_normal(
    (n_heads, rank, n_dims + 1)
)
value = rng.standard_normal((n_heads, n_dims + 1, rank)) @ rng.standard_normal(
    (n_heads, rank, n_dims)
)
secret = pa.SoftmaxAttention(attn / n_dims, value / n_dims, bias=True)

found = pa.learn_from_queries(secret, n_dims=n_dims, bias=True)
print(found.outcome)
print(f"{found.n_queries} queries; the literature's bound is {4 * n_heads * n_dims**2}")
print(pa.match_heads(found.layer, secret))
print("the same function:", pa.same_function(found.layer, secret, tolerance=1e-7))
