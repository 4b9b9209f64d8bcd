"""Relational learning from traces: one coefficient for all values that are related in one way."""
