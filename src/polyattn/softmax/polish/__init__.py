"""Levenberg–Marquardt for heads, with the values eliminated: from near to exact."""

from polyattn.softmax.polish.descent import Polished, polish
from polyattn.softmax.polish.projection import Projection, project

__all__ = ["Polished", "Projection", "polish", "project"]
