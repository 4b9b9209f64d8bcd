"""From sequences to features: sums over tokens, summaries, products of features, their kernel.

Everything here is laid out features-first: arrays (n_sums, rows), (n_queries, rows),
(n_features, rows), so that products run along contiguous rows and BLAS sees its own order.
"""
