"""Exact arithmetic: rank and null vectors modulo a prime, checked in integers."""
