"""Jobs with figures: the paper's task end to end, the gradient baseline, quick comparisons.

Modules are imported by name when they are run; ``adam`` needs torch.
"""
