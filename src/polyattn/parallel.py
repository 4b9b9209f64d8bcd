"""Threads over independent pieces, each with single-threaded BLAS.

Forming products is memory work that BLAS does not spread over cores; whole pieces (products and
multiplication together) are.  The number of workers is what BLAS was allowed to use, so limits
set by the caller (threadpoolctl, joblib, environment variables) are honoured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def n_workers() -> int:
    """How many threads the caller lets BLAS use."""
    return _limit.allowed or _allowed_by_blas()


def map_pieces(function: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
    """``[function(piece) for piece in pieces]``, on as many threads as BLAS may use."""
    workers = min(n_workers(), len(pieces))
    if workers <= 1:
        return [function(piece) for piece in pieces]
    with single_threaded_blas():
        return list(_pool(workers).map(function, pieces))


def deal(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """The pieces dealt to the workers like cards: always the same ones to the same worker."""
    hands = [list(pieces[i :: n_workers()]) for i in range(n_workers())]
    return [hand for hand in hands if hand]


class _Limit:
    """BLAS limits are global: the first thread to come sets them, the last to go restores."""

    lock = Lock()
    users = 0
    allowed = 0  # what BLAS could use before; 0 while nobody limits it
    limiter: Any = None


_limit = _Limit()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Within the block BLAS uses one thread: many small products only wait for each other."""
    with _limit.lock:
        if _limit.users == 0:
            _limit.allowed = _allowed_by_blas()
            _limit.limiter = _blas().limit(limits=1)
        _limit.users += 1
    try:
        yield
    finally:
        with _limit.lock:
            _limit.users -= 1
            if _limit.users == 0:
                _limit.limiter.restore_original_limits()
                _limit.allowed = 0


def _allowed_by_blas() -> int:
    return max((library["num_threads"] for library in _blas().info()), default=1)


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    # Looking the libraries up costs milliseconds; asking a known one costs microseconds.
    return ThreadpoolController().select(user_api="blas")


@lru_cache(maxsize=4)
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="polyattn")


if hasattr(os, "register_at_fork"):
    # Threads do not survive a fork: a child starts its own.
    os.register_at_fork(after_in_child=_pool.cache_clear)
