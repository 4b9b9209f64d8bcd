"""Fits of one-hot tokens that are given as numbers of symbols: sparse from end to end."""
