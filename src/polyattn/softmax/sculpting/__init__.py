"""The paper's method: sculpt a convex body around all heads, find their span, search in it."""

from polyattn.softmax.sculpting.body import ConvexBody, Extreme
from polyattn.softmax.sculpting.non_degeneracy import NonDegeneracy, non_degeneracy
from polyattn.softmax.sculpting.sculpt import Condition, Sculpted, sculpt

__all__ = [
    "Condition",
    "ConvexBody",
    "Extreme",
    "NonDegeneracy",
    "Sculpted",
    "non_degeneracy",
    "sculpt",
]
