"""Softmax attention recovered from a black box that answers chosen sequences [bhattamishra2026].

Read ``learn_from_queries.py`` first: the phases in order.  Then ``pairs.py`` for the effect of two
tokens, and ``mixing.py`` for how heads are separated.
"""

from polyattn.softmax.queries.learn_from_queries import learn_from_queries
from polyattn.softmax.queries.result import QueryResult

__all__ = ["QueryResult", "learn_from_queries"]
