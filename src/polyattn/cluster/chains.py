"""Stretches of chunks as chains of tasks, and their results in the order of the stretches.

Each task of a chain adds some chunks to what the one before it made, which stays on its worker.
When a worker dies, Dask makes what was lost again: from the files, by the tasks before it.  Only so
many stretches are begun ahead of the one whose result is waited for, so that results in flight,
and tasks that the scheduler knows, are as few for a large source as for a small one.

The results come in the order of the stretches, never in that in which workers finish: whoever adds
them up gets the same bits from any number of workers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from queue import Empty, Queue
from typing import Any, Generic, TypeVar
from uuid import uuid4

from polyattn.cluster import fetching
from polyattn.cluster.fetching import Fetching, Lost, as_ours, give_up, is_lost, sent_again
from polyattn.cluster.sending import Add, Begin, add_first_link, add_link, links
from polyattn.cluster.workers import Workers
from polyattn.errors import ClusterFailed
from polyattn.progress import report
from polyattn.sources.source import Chunk

Result = TypeVar("Result")


def results_in_order(
    workers: Workers,
    stretches: Sequence[Sequence[Chunk]],
    begin: Begin[Result],
    add: Add[Result],
    *,
    per_thread: int = 2,
    done_before: int = 0,
) -> Generator[Result]:
    """``begin(chunks)`` of each stretch, in order; workers compute several at once.

    begin, add : are sent to the workers; ``add(result, chunks)`` returns a new result, and
        ``add(begin(some), others)`` must be the same as ``begin(some + others)``
    per_thread : stretches begun at once, for each thread of a worker
    done_before : bytes of other chunks that are done, for the progress that is reported
    Guarantee: every chunk is added once to the result of its stretch, whatever dies or is retried.
    When the iteration ends early, by an error or by ``close``, what was begun is cancelled.
    """
    run = _Run(workers, stretches, begin, add, done_before)
    ahead = max(1, per_thread * workers.n_threads)
    try:
        for number in range(len(stretches)):
            for each in range(number, min(number + ahead, len(stretches))):
                run.begin(each)
            yield run.result(number)
    finally:
        run.cancel()


class _Chain:
    """A stretch at work: its links, how many are done, and the future of the last one begun."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.links = links(chunks)
        self.attempt = 0
        self.restart()

    def restart(self) -> None:
        self.attempt += 1
        self.n_done = 0
        self.future: Any = None
        self.sent: list[Any] = []

    @property
    def is_done(self) -> bool:
        return self.n_done == len(self.links)

    @property
    def bytes_done(self) -> int:
        return sum(chunk.n_bytes for link in self.links[: self.n_done] for chunk in link)


class _Run(Generic[Result]):
    """All chains of one pass over some stretches."""

    def __init__(
        self,
        workers: Workers,
        stretches: Sequence[Sequence[Chunk]],
        begin: Begin[Result],
        add: Add[Result],
        done_before: int,
    ) -> None:
        self.workers, self.client = workers, workers.client
        self.stretches, self._begin, self._add = stretches, begin, add
        self.bytes_done = done_before  # of chains whose results were handed out, and before them
        self.total = done_before + sum(each.n_bytes for chunks in stretches for each in chunks)
        # In every key: what another run computed, or an attempt that failed, is never taken.
        self.name = f"polyattn-add-chunks-{uuid4().hex}"
        self.chains: dict[int, _Chain] = {}
        self.news: Queue[tuple[int, int, int]] = Queue()
        self.fetching = Fetching(workers)

    def begin(self, number: int) -> None:
        """Begin a stretch, unless it is."""
        if number not in self.chains:
            self.chains[number] = chain = _Chain(self.stretches[number])
            self._submit(number, chain)

    def result(self, number: int) -> Result:
        """Wait for the result of a stretch, and let the workers forget it."""
        chain = self.chains[number]
        while True:
            while not chain.is_done:
                self._wait_for_a_link()
            try:
                result: Result = self.fetching.value(chain.future)
            except Lost:  # at the last moment
                self._begin_anew(number, chain)
                continue
            self.bytes_done += chain.bytes_done
            # Errors that were caught may still hold the chain; the workers need not wait for that.
            del self.chains[number], chain.future
            return result

    def cancel(self) -> None:
        """Let go of all that is in flight."""
        self.fetching.end()
        futures = [chain.future for chain in self.chains.values() if chain.future is not None]
        self.chains.clear()
        give_up(self.workers, futures)

    def _submit(self, number: int, chain: _Chain) -> None:
        """Begin the next link of a chain."""
        place = (number, chain.attempt, chain.n_done)
        software, before = self.workers.software, chain.future
        # What was sent for the link before is done with, and forgotten.
        chain.sent = sent_again(self.workers, chain.links[chain.n_done])
        task: tuple[Any, ...] = (
            (add_first_link, self._begin, software)
            if chain.n_done == 0
            else (add_link, self._add, software, before)
        )
        chain.future = self.client.submit(
            *task, *chain.sent, key=(self.name, *place), pure=False, priority=-number
        )
        chain.future.add_done_callback(lambda _: self.news.put(place))

    def _wait_for_a_link(self) -> None:
        """Wait until a link is done, and begin what follows it."""
        try:
            number, attempt, link = self.news.get(timeout=fetching.NEWS_SECONDS)
        except Empty:
            self.workers.wait_for_worker()
            self._look_for_lost()
            return
        chain = self.chains.get(number)
        if chain is None or (chain.attempt, chain.n_done) != (attempt, link):
            return  # of an attempt that was given up
        status = chain.future.status
        if status == "error":
            raise as_ours(chain.future.exception())
        if status == "cancelled":
            self._begin_anew(number, chain)
            return
        chain.n_done += 1
        report(self.bytes_done + sum(each.bytes_done for each in self.chains.values()), self.total)
        if not chain.is_done:
            self._submit(number, chain)

    def _look_for_lost(self) -> None:
        """Begin chains anew whose arrays nobody has."""
        for number, chain in list(self.chains.items()):
            if not chain.is_done and is_lost(self.workers, chain.sent):
                self._begin_anew(number, chain)

    def _begin_anew(self, number: int, chain: _Chain) -> None:
        if chain.attempt == fetching.MOST_ATTEMPTS:
            raise ClusterFailed(
                f"part {number} of the data was lost {fetching.MOST_ATTEMPTS} times with the "
                "workers that held it. Give them more memory, or put the data into files."
            )
        self.workers.wait_for_scheduler()
        self.workers.wait_for_worker()
        # It may still wait for what is lost.
        give_up(self.workers, [chain.future])
        chain.restart()
        self._submit(number, chain)
