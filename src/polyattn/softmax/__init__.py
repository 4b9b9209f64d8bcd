"""Softmax attention learned from random examples, and from queries [chen2024]."""
