"""More heads from fewer, other starts, and the search that combines them."""

from polyattn.softmax.growth.search_heads import grow, search_heads

__all__ = ["grow", "search_heads"]
