"""Is this the layer?  Held-out residuals, tests for noise, error bars, what cannot be seen."""
