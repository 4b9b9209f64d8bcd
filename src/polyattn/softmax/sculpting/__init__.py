"""The paper's road: sculpt a convex body around all heads, find their span, search in it."""

from polyattn.softmax.sculpting.body import Body, Extreme, Membership
from polyattn.softmax.sculpting.conditions import Condition
from polyattn.softmax.sculpting.sculpt import Sculpted, sculpt

__all__ = ["Body", "Condition", "Extreme", "Membership", "Sculpted", "sculpt"]
