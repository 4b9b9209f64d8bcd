"""Slow, literal transcriptions of the papers: the oracle against which fast code is tested.

Numpy only, nothing of polyattn, loops over every index that the papers write.  Sequences are
plain arrays (n, d) and lists of them; nothing is validated.  Index letters: a output coordinate,
j <= k the pair, l query coordinate, h head, t position.
"""
