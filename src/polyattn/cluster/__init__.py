"""Work on the machines of a Dask cluster: results in a fixed order, whoever computes them."""

from polyattn.cluster.chains import results_in_order
from polyattn.cluster.holding import HeldParts, Unit, units_of
from polyattn.cluster.workers import Workers, require_workers

__all__ = ["HeldParts", "Unit", "Workers", "require_workers", "results_in_order", "units_of"]
