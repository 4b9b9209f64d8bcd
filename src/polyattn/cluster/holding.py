"""Parts of data that stay on the workers, and what functions of them give, in a fixed order.

Consecutive parts form a unit, which one worker makes of its chunks and holds.  A function goes to
the units, and its results come back part by part, in the order of the parts, never in that in
which workers finish: whoever adds them up gets the same bits from any number of workers.  When a
worker dies, Dask makes its units again on another one, from the files.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from polyattn.cluster import fetching
from polyattn.cluster.fetching import Fetching, Lost, as_ours, give_up, is_lost, sent_again
from polyattn.cluster.sending import REFERENCE_BYTES, bytes_to_send
from polyattn.cluster.unit_tasks import Given, apply_to_parts, derive_parts, make_parts, same
from polyattn.cluster.workers import Workers
from polyattn.errors import ClusterFailed
from polyattn.progress import report
from polyattn.sources.source import Chunk

# So many units for each thread of a worker: what a dead one held is shared by the others.
UNITS_PER_THREAD = 2

# Results of so many units are fetched at once.
FETCHED_TOGETHER = 8


@dataclass(frozen=True)
class Unit:
    """Consecutive parts of data that are held together.

    make : is sent to a worker; from the chunks to the parts
    sizes : of the parts, for progress
    """

    make: Callable[[Sequence[Chunk]], list[Any]]
    chunks: Sequence[Chunk]
    sizes: Sequence[int]


class HeldParts:
    """All parts of some data, made on the workers when they are first needed, and kept there.

    They are let go when nobody refers to this object.
    """

    def __init__(self, workers: Workers, units: Sequence[Unit]) -> None:
        self._workers, self._units = workers, units
        self._before: HeldParts | None = None
        self._function: tuple[Any, ...] = ()  # by which they are made of those before
        self._given: Any = None
        # In every key: what others computed, or an attempt that failed, is never taken.
        self._name, self._n_begun = f"polyattn-hold-{uuid4().hex}", 0
        self._futures: dict[int, Any] = {}
        self._sent: dict[int, list[Any]] = {}

    def derived(self, function: Callable[..., Any], *arguments: Any) -> HeldParts:
        """``function(part, *arguments)`` of each part, held where the part is."""
        made = HeldParts(self._workers, self._units)
        made._before, made._function = self, (function, *arguments)
        return made

    def results(
        self, function: Callable[..., Any], *arguments: Any, are_large: bool = False
    ) -> Generator[Any]:
        """``function(part, *arguments)`` of each part, in order.

        are_large : so that few results may wait for others; else all units work at once
        When the iteration ends early, what was begun is cancelled.
        """
        call = _Call(self, function, arguments)
        total, done = sum(sum(unit.sizes) for unit in self._units), 0
        count = len(self._units)
        ahead = self._workers.n_threads if are_large else count
        together = 1 if are_large else FETCHED_TOGETHER
        try:
            for first in range(0, count, together):
                numbers = range(first, min(first + together, count))
                call.begin(range(min(numbers.stop + ahead, count)))
                for number, found in zip(numbers, call.fetched(numbers), strict=True):
                    yield from found
                    done += sum(self._units[number].sizes)
                    report(done, total)
        finally:
            call.end()

    def future(self, number: int) -> Any:
        """That of a unit, which is begun if it is not."""
        if number not in self._futures:
            self._futures[number] = self._begun(number)
        return self._futures[number]

    def renew(self, number: int) -> None:
        """Forget a unit that is lost, and what it was made of."""
        self._futures.pop(number, None)
        self._sent.pop(number, None)
        if self._before is not None:
            self._given = None
            self._before.renew(number)

    def settle(self, number: int) -> None:
        """A unit was made: what was sent for it is let go, and sent again if the unit is lost."""
        self._sent.pop(number, None)
        if self._before is not None:
            self._before.settle(number)

    def is_lost(self, number: int) -> bool:
        """Whether a unit waits for arrays that nobody has."""
        if self._before is not None and self._before.is_lost(number):
            return True
        return is_lost(self._workers, self._sent.get(number, []))

    def _begun(self, number: int) -> Any:
        workers, unit = self._workers, self._units[number]
        self._n_begun += 1
        key = (self._name, number, self._n_begun)
        if self._before is not None:
            if self._given is None:
                self._given = send_given(workers, (*key, "given"), *self._function)
            before = self._before.future(number)
            where = places(workers, {number: before}).get(number, {})
            return workers.client.submit(
                derive_parts, workers.software, before, self._given, key=key, pure=False, **where
            )
        self._sent[number] = sent = sent_again(workers, unit.chunks)
        return workers.client.submit(
            make_parts, workers.software, unit.make, *sent, key=key, pure=False
        )


class _Call:
    """A function at work on all units."""

    def __init__(
        self, held: HeldParts, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> None:
        self.held, self.workers = held, held._workers
        self.function, self.arguments = function, arguments
        self.name, self.n_begun = f"polyattn-pass-{uuid4().hex}", 0
        self.fetching = Fetching(self.workers)
        self.given = self._given()
        self.futures: dict[int, Any] = {}
        self.n_units = 0

    def begin(self, numbers: range) -> None:
        """Begin units up to some number, but for those that were."""
        self.futures.update(self._submitted(numbers[self.n_units :]))
        self.n_units = numbers.stop

    def fetched(self, numbers: Sequence[int]) -> list[list[Any]]:
        """Wait for the results of some units, and let the workers forget them."""
        from distributed import KilledWorker

        for _ in range(fetching.MOST_ATTEMPTS):
            futures = [self.futures[number] for number in numbers]
            try:
                found: list[list[Any]] = self.fetching.value(futures, lambda: self._look(numbers))
            except Lost:
                self._begin_anew(numbers)
                continue
            except KilledWorker as error:
                raise as_ours(error) from error
            for number in numbers:
                self.held.settle(number)
                # Errors that were caught may still hold it; the workers need not wait for that.
                self.futures.pop(number).release()
            return found
        raise ClusterFailed(
            f"a part of the data was lost {fetching.MOST_ATTEMPTS} times with the workers that "
            "held it. Give them more memory, or put the data into files."
        )

    def end(self) -> None:
        """Let go of all that is in flight."""
        self.fetching.end()
        if not isinstance(self.given, Given):
            self.given.release()
        futures = list(self.futures.values())
        self.futures.clear()
        give_up(self.workers, futures)

    def _look(self, numbers: Sequence[int]) -> None:
        # Whoever waits for what is lost is told so.
        lost = [self.futures[number] for number in numbers if self.held.is_lost(number)]
        give_up(self.workers, lost)

    def _begin_anew(self, numbers: Sequence[int]) -> None:
        """Begin what was cancelled; the scheduler may be another one, and know nothing."""
        self.workers.wait_for_scheduler()
        self.workers.wait_for_worker()
        self.given = self._given()
        lost = [number for number in numbers if self.futures[number].status == "cancelled"]
        for number in lost:
            self.held.renew(number)
        self.futures.update(self._submitted(lost))

    def _given(self) -> Any:
        self.n_begun += 1
        key = (self.name, self.n_begun, "given")
        return send_given(self.workers, key, self.function, *self.arguments)

    def _submitted(self, numbers: Iterable[int]) -> dict[int, Any]:
        """The futures of this call for some units."""
        units = {number: self.held.future(number) for number in numbers}
        where = places(self.workers, units)
        return {
            number: self.workers.client.submit(
                apply_to_parts, self.workers.software, unit, self.given,
                key=(self.name, self.n_begun, number), pure=False, priority=-number,
                **where.get(number, {}),
            )
            for number, unit in units.items()
        }  # fmt: skip


def send_given(
    workers: Workers, key: tuple[Any, ...], function: Callable[..., Any], *arguments: Any
) -> Any:
    """What a task takes for a function and its arguments: themselves, where that is little.

    Else they are sent once for all units, and workers get them from one another.  The scheduler
    can send both again.
    """
    import dask

    given = Given(function, *arguments)
    if bytes_to_send(given) <= REFERENCE_BYTES:
        return given
    # Coefficients are no graph: their size is no mistake.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
        return workers.client.submit(same, given, key=key, pure=False)


def places(workers: Workers, units: dict[int, Any]) -> dict[int, dict[str, Any]]:
    """Where tasks should run that take these units: where they are, if that is known."""
    made = {number: each for number, each in units.items() if each.status == "finished"}
    if not made:
        return {}
    try:
        found = workers.client.who_has(list(made.values()))
    except OSError:  # the scheduler is gone this very moment
        return {}
    holders = {number: list(found.get(each.key, ())) for number, each in made.items()}
    return {
        number: {"workers": some, "allow_other_workers": True}
        for number, some in holders.items()
        if some
    }


def units_of(n_parts: int, workers: Workers) -> list[range]:
    """Consecutive parts that are held together: enough units for all threads."""
    count = max(1, min(n_parts, UNITS_PER_THREAD * workers.n_threads))
    return [range(i * n_parts // count, (i + 1) * n_parts // count) for i in range(count)]
