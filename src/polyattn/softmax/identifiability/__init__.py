"""What can be known of the heads of a softmax layer, from all inputs or from given ones."""

from polyattn.softmax.identifiability.identifiable_heads import HeadReport, identifiable_heads
from polyattn.softmax.identifiability.visible import HeadFinding

__all__ = ["HeadFinding", "HeadReport", "identifiable_heads"]
