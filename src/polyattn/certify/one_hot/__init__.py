"""Certificates of one-hot tokens that are given as numbers of symbols: exact, and sparse."""
