"""Fit a layer to the global optimum: arguments in, a solver chosen, a result with its outcome."""
