"""More heads from fewer, other starts, and the search that combines them."""

from polyattn.softmax.growth.descents import random_heads, restarts
from polyattn.softmax.growth.grow import grow
from polyattn.softmax.growth.search_heads import search_heads

__all__ = ["grow", "random_heads", "restarts", "search_heads"]
