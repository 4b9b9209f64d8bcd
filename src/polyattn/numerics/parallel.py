"""Threads over independent pieces, each with single-threaded BLAS; values computed once for all.

Forming products is memory work that BLAS does not spread over cores; whole pieces (products and
multiplication together) are.  The number of workers is what BLAS was allowed to use, so limits
set by the caller (threadpoolctl, joblib, environment variables) are honoured.  BLAS itself runs on
one thread, and what is a piece depends on the data alone: the number of workers changes no result.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cached_property, lru_cache
from itertools import product
from threading import RLock
from typing import Any, NamedTuple, TypeVar

from threadpoolctl import ThreadpoolController

from polyattn.errors import InvalidInput
from polyattn.quoting import readable_bytes

Piece = TypeVar("Piece")
Result = TypeVar("Result")
Value = TypeVar("Value")

# Pieces whose sums are added up form so many groups, however many workers there are.
MOST_GROUPS = 8


def n_workers() -> int:
    """How many threads the caller lets BLAS use; one inside a worker."""
    if _own.is_worker:
        return 1
    return max(1, _process.allowed(), _own.limit.allowed())


def map_pieces(function: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
    """``[function(piece) for piece in pieces]``, on as many threads as BLAS may use.

    When a piece fails, or the caller is interrupted, no piece is still running afterwards.
    """
    with single_threaded_blas():
        workers = min(n_workers(), len(pieces))
        if workers <= 1:
            return [function(piece) for piece in pieces]
        pool = _pool(workers)
        futures = [pool.submit(function, piece) for piece in pieces]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
            wait(futures)


def deal(pieces: Sequence[Piece], most: int = MOST_GROUPS) -> list[list[Piece]]:
    """The pieces in at most so many groups, in turn: always the same ones together."""
    groups = [list(pieces[i::most]) for i in range(most)]
    return [group for group in groups if group]


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Within the block BLAS uses one thread, in whichever thread the block runs.

    Many small products on several threads only wait for each other.  Blocks may be nested, and
    several threads may be inside at once; the last one to leave restores what was before.
    """
    lock = _process.lock
    with lock:
        _process.enter()
    _own.limit.enter()
    try:
        yield
    finally:
        # In a process forked within the block there is nothing left to leave.
        if lock is _process.lock:
            _own.limit.leave()
            with lock:
                _process.leave()


def physical_memory() -> int | None:
    """Bytes of memory of this machine; None where that cannot be asked."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def require_physical_memory(n_bytes: int, what: str, instead: str) -> None:
    """Refuse what would take more bytes than this machine has, as far as that is known."""
    available = physical_memory()
    if available is not None and n_bytes > available:
        raise InvalidInput(
            f"{what} would take about {readable_bytes(n_bytes)}, and this machine has "
            f"{readable_bytes(available)}. {instead}"
        )


class computed_once(cached_property[Value]):  # noqa: N801 (used like cached_property)
    """``cached_property`` for objects that threads share: all of them get the same value.

    The first thread computes while the others wait for it.  If it fails, the next one tries.
    """

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        values, name = vars(instance), str(self.attrname)
        if name not in values:
            key = (os.getpid(), id(instance), name)
            with _locks.setdefault(key, RLock()):
                if name not in values:
                    values[name] = self.func(instance)
            # Others find the value from now on.
            _locks.pop(key, None)
        return values[name]


# Locks of the values that are being computed: by process (a fork must not inherit a lock that
# another thread holds), object and name.  Objects carry none, so they can be copied and sent.
_locks: dict[tuple[int, int, str], RLock] = {}


class _Library(NamedTuple):
    """A BLAS library: how to read and write its number of threads, and for whom that counts."""

    read: Callable[[], int]
    write: Callable[[int], object]
    per_thread: bool


class _Limit:
    """Libraries on one thread while there are users, and the numbers to restore afterwards."""

    def __init__(self, per_thread: bool) -> None:
        self.per_thread = per_thread
        self.lock = threading.Lock()
        self.users = 0
        self.numbers: list[int] = []

    def enter(self) -> None:
        libraries = _libraries(self.per_thread)
        found = [library.read() for library in libraries]
        if self.users == 0:
            self.numbers = found
        for i, library in enumerate(libraries):
            if found[i] != 1:
                # A number that was set within the block is the one to restore.
                self.numbers[i] = found[i]
                library.write(1)
        self.users += 1

    def leave(self) -> None:
        self.users -= 1
        if self.users == 0:
            for library, number in zip(_libraries(self.per_thread), self.numbers, strict=True):
                if number != 1:
                    library.write(number)

    def allowed(self) -> int:
        """The largest number of threads outside of all blocks; 0 without libraries."""
        if self.users:
            return max(self.numbers, default=0)
        return max((library.read() for library in _libraries(self.per_thread)), default=0)


class _Own(threading.local):
    """What belongs to each thread."""

    is_worker = False

    def __init__(self) -> None:
        self.limit = _Limit(per_thread=True)


_process, _own = _Limit(per_thread=False), _Own()


@lru_cache(maxsize=2)
def _libraries(per_thread: bool) -> tuple[_Library, ...]:
    """Those loaded at the first call: looking for them takes milliseconds, asking them does not."""
    controllers = ThreadpoolController().select(user_api="blas").lib_controllers
    found = [_library(controller) for controller in controllers]
    return tuple(library for library in found if library.per_thread == per_thread)


def _library(controller: Any) -> _Library:
    """The library behind a controller of threadpoolctl."""
    layer, symbols = getattr(controller, "threading_layer", ""), controller.dynlib
    if controller.internal_api == "openblas" and layer != "openmp":
        # threadpoolctl lets only one thread at a time set its number, and ignores all others.
        for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64")):
            read = getattr(symbols, f"{prefix}openblas_get_num_threads{suffix}", None)
            write = getattr(symbols, f"{prefix}openblas_set_num_threads{suffix}", None)
            if read is not None and write is not None:
                return _Library(read, write, per_thread=False)
    if controller.internal_api == "mkl":
        write = symbols.MKL_Set_Num_Threads_Local
        return _Library(controller.get_num_threads, write, per_thread=True)
    read, write = controller.get_num_threads, controller.set_num_threads
    return _Library(read, write, per_thread=layer == "openmp")


@lru_cache(maxsize=4)
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, "polyattn", initializer=_begin_worker)


def _begin_worker() -> None:
    """Mark this thread as a worker, whose BLAS has one thread for good."""
    _own.is_worker = True
    _own.limit.enter()


def _begin_anew() -> None:
    """Neither threads nor locks survive a fork: a child starts its own."""
    _pool.cache_clear()
    for limit in (_process, _own.limit):
        limit.lock = threading.Lock()
        if limit.users:
            limit.users = 1
            limit.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
