"""How a verdict is reached: by counting, in floating point, or by the span of a custom domain."""
