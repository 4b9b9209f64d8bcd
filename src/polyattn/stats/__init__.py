"""Mergeable statistics: everything a fit or a certificate needs to know of the data."""

from polyattn.stats.moments import Moments
from polyattn.stats.triangular_factor import TriangularFactor

__all__ = ["Moments", "TriangularFactor"]
