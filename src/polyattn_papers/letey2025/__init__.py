"""The experiment of Letey et al. on tasks and their alignment in context [letey2025]."""
