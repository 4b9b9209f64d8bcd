"""More heads from fewer, other starts, and the search that combines them."""

from polyattn.softmax.growth.search_heads import grow, restarts, search_heads

__all__ = ["grow", "restarts", "search_heads"]
