"""From sequences to features: pair index, summaries, cubic features, kernel.

Everything here is laid out features-first: arrays (n_pairs, rows), (width, rows),
(n_features, rows), so that products run along contiguous rows and BLAS sees its own order.
"""
