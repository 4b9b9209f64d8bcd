"""Running: one history, or many at once, token after token."""
