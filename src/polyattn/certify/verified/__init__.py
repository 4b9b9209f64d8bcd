"""Floating point whose rounding is bounded: what survives is proved."""
