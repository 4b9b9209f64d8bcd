"""Is this the layer?  Held-out residuals, tests for noise, error bars, what cannot be seen."""

from polyattn.softmax.judging.judge import Judge

__all__ = ["Judge"]
