"""Work on the machines of a Dask cluster: results in a fixed order, whoever computes them."""

from polyattn.cluster.chains import results_in_order
from polyattn.cluster.workers import Workers, require_workers

__all__ = ["Workers", "require_workers", "results_in_order"]
