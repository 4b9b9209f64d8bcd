"""From coefficients to heads: exactly, with as few as possible, or with a limited number."""

from polyattn.heads.best import best_heads
from polyattn.heads.choose import choose_heads
from polyattn.heads.compress import compress, factor
from polyattn.heads.data_scale import GramScale
from polyattn.heads.head_rank import split_ranks
from polyattn.heads.target import Compression

__all__ = [
    "Compression",
    "GramScale",
    "best_heads",
    "choose_heads",
    "compress",
    "factor",
    "split_ranks",
]
