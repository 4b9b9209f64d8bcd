"""Levenberg–Marquardt for heads, with the values eliminated: from near to exact."""

from polyattn.softmax.polish.descent import Polished, polish
from polyattn.softmax.polish.projection import Projection, project
from polyattn.softmax.polish.stages import descend, enough

__all__ = ["Polished", "Projection", "descend", "enough", "polish", "project"]
