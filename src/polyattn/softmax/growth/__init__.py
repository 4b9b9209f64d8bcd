"""More heads from fewer, other starts, and the search that combines them."""

from polyattn.softmax.growth.growing import grow
from polyattn.softmax.growth.searching import search
from polyattn.softmax.growth.starts import random_heads, restarts

__all__ = ["grow", "random_heads", "restarts", "search"]
