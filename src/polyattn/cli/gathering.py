"""How a verb goes through large data: a checkpoint, and workers here or behind a scheduler."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TypeVar

import click

from polyattn.cli import console
from polyattn.errors import ClusterFailed, InvalidInput, MissingExtra
from polyattn.quoting import shown

Command = TypeVar("Command", bound=Callable[..., Any])

# A scheduler that does not answer in this time is not there.
ANSWER_SECONDS = 30

_NEEDED = "workers need dask and distributed: pip install 'polyattn[dask]'"


@dataclass(frozen=True)
class GatheringOptions:
    """How a verb goes through data in chunks: where it works, and what it keeps meanwhile."""

    address: str | None = None
    n_workers: int | None = None
    checkpoint: Path | None = None

    @property
    def asked(self) -> bool:
        """Whether any of it was asked for."""
        return any(each is not None for each in (self.address, self.n_workers, self.checkpoint))

    def refuse(self, because: str) -> None:
        """Refuse what was asked for."""
        given = {"dask": self.address, "workers": self.n_workers, "checkpoint": self.checkpoint}
        for name, each in given.items():
            if each is not None:
                raise InvalidInput(f"{because}; leave --{name} out.")

    @contextmanager
    def arguments(self) -> Iterator[dict[str, Any]]:
        """The arguments of ``fit`` and ``certify``, while workers are there."""
        given = {} if self.checkpoint is None else {"checkpoint": self.checkpoint}
        with cluster(self.address, self.n_workers) as client:
            yield given if client is None else given | {"client": client}


def gathering_options(command: Command) -> Command:
    """Add ``--checkpoint``, ``--dask`` and ``--workers`` to a verb."""
    for option in (
        click.option(
            "--workers", "n_workers", type=click.IntRange(1), metavar="N",
            help="Work in N processes of this machine.",
        ),
        click.option("--dask", "address", metavar="ADDRESS", help="Work on this Dask scheduler."),
        click.option(
            "--checkpoint", type=console.FILE, callback=console.writable,
            help="Keep what is done there; if killed, the same command goes on from it.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def take_gathering(options: dict[str, Any], output: Path | None) -> GatheringOptions:
    """What was asked for, taken out of ``options``; the output is another file."""
    gathering = GatheringOptions(
        *(options.pop(name) for name in ("address", "n_workers", "checkpoint"))
    )
    if gathering.address is not None and gathering.n_workers is not None:
        raise InvalidInput(
            "--workers starts processes here, and --dask names a scheduler that has its own; "
            "leave one of them out."
        )
    kept = gathering.checkpoint
    if kept is not None and output is not None and kept.resolve() == output.resolve():
        raise InvalidInput(
            f"--checkpoint and --output both name {str(output)!r}; keep the sums in another file."
        )
    return gathering


@contextmanager
def cluster(address: str | None, n_workers: int | None) -> Iterator[Any]:
    """A client of the scheduler, or of workers that end with the block; None if none is asked for.

    However the block is left, by Ctrl-C too, the processes that it started are gone behind it.
    """
    if address is None and n_workers is None:
        yield None
        return
    distributed, dask = _distributed()
    with ExitStack() as opened:
        # Workers that are told to end say so at length.
        opened.enter_context(dask.config.set({"distributed.logging.distributed": "critical"}))
        with console.working("waiting for workers"):
            if address is None:
                with uninterrupted():
                    here = opened.enter_context(_started(distributed, n_workers))
                address = here.scheduler_address
            client = opened.enter_context(_client(distributed, address))
        yield client


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the block is left; processes that are started in it never see it.

    Otherwise those that are just being started would end with tracebacks, and nobody would know
    of them: they end when they are told to.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # It lets signals through again when it is started, so that is done before.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _distributed() -> tuple[Any, Any]:
    """The packages distributed and dask."""
    try:
        import dask
        import distributed
    except ImportError as error:
        raise MissingExtra(f"{_NEEDED} (missing: {error.name}).") from error
    return distributed, dask


def _started(distributed: Any, n_workers: int | None) -> Any:
    """A cluster of processes on this machine."""
    try:
        return distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=True,
            # Any free port: another cluster may have the usual one.
            dashboard_address=":0", silence_logs="CRITICAL",
        )  # fmt: skip
    except (OSError, RuntimeError, TimeoutError) as error:
        raise ClusterFailed(
            f"{n_workers} worker processes could not be started: {error}"
        ) from error


def _client(distributed: Any, address: str) -> Any:
    """A client of the scheduler at this address, which has workers."""
    try:
        # A client that fails leaves threads behind; so it is made where somebody answers.
        asyncio.run(_greet(distributed, address))
        client = distributed.Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except ValueError as error:
        raise InvalidInput(
            f"--dask must be the address of a scheduler, such as tcp://host:8786; got "
            f"{shown(address)}."
        ) from error
    except (OSError, TimeoutError) as error:
        raise InvalidInput(
            f"no Dask scheduler answers at {shown(address)} within {ANSWER_SECONDS} s; start one "
            "with 'dask scheduler', or use --workers N."
        ) from error
    if not client.scheduler_info(n_workers=-1)["workers"]:
        client.close()
        raise InvalidInput(
            f"the Dask scheduler at {shown(address)} has no workers; start some with "
            f"'dask worker {address}'."
        )
    return client


async def _greet(distributed: Any, address: str) -> None:
    """Connect and leave again; raises where nobody answers in time."""
    answer = await distributed.comm.connect(address, timeout=ANSWER_SECONDS)
    await answer.close()
