"""Levenberg–Marquardt for heads, with the values eliminated: from near to exact."""

from polyattn.softmax.polish.polish import OnStep, enough, polish
from polyattn.softmax.polish.projection import Projection, project

__all__ = ["OnStep", "Projection", "enough", "polish", "project"]
