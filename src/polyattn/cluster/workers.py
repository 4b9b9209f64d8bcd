"""Who works: a client of a Dask cluster, whose workers all compute the same bits.

Sums are rounded as BLAS multiplies, and that differs between versions and between processors.
So the workers are asked for both before the work begins, and each one again when it takes a task,
since workers may join later.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_info

from polyattn._version import __version__
from polyattn.errors import ClusterFailed, InvalidInput, InvalidType, missing_extra
from polyattn.numerics.parallel import physical_memory
from polyattn.quoting import readable_bytes, shown

# How long a cluster may be without any worker, and a client without its scheduler.
PATIENCE_SECONDS = 60.0

# What a worker and the client must have in common; processors only workers among each other.
VERSIONS = ("python", "polyattn", "numpy", "scipy")


@dataclass(frozen=True)
class Workers:
    """A client, and what its workers have in common.

    software : what every worker must say of itself (``software``)
    n_threads : of all workers together, as the work begins
    memory : bytes that each thread of a worker may use; None where no worker has a limit
    is_local : whether all of them run on this machine, and are reached without the scheduler
    total_memory : bytes of all machines together, as far as workers may use them
    """

    client: Any
    software: dict[str, str]
    n_threads: int
    memory: int | None
    is_local: bool
    total_memory: int = 0

    def wait_for_scheduler(self) -> None:
        """Return once the client is connected, or raise ``ClusterFailed``."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.client.status != "running":
            if self.client.status in ("closing", "closed") or time.monotonic() > deadline:
                raise ClusterFailed(
                    "the connection to the scheduler of the Dask cluster is lost. With "
                    "checkpoint=PATH the same call goes on from where it was, on any cluster."
                )
            time.sleep(0.05)

    def wait_for_worker(self) -> None:
        """Return once there is a worker, or raise ``ClusterFailed``."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._n_workers():
            if time.monotonic() > deadline:
                raise ClusterFailed(
                    f"the Dask cluster has had no workers for {PATIENCE_SECONDS:g} seconds. "
                    "Start some, and run the same call again; with checkpoint=PATH it goes on "
                    "from where it was."
                )
            time.sleep(0.5)

    def _n_workers(self) -> int:
        self.wait_for_scheduler()
        try:
            return len(self.client.nthreads())
        except OSError:  # the scheduler is gone this very moment
            return 0


def require_workers(client: object) -> Workers:
    """The workers of ``client``, a ``distributed.Client``; refused where bits would differ."""
    _require_client(client)
    answers = _asked(client)
    if not answers:
        raise InvalidInput("client has no workers; start some (client.wait_for_workers(1)).")
    own = software()
    first, *_ = answers
    for address, answer in answers.items():
        _require_same(answer["software"], own, VERSIONS, f"worker {address}", "this process")
        _require_same(
            answer["software"], answers[first]["software"], tuple(own), f"worker {address}",
            f"worker {first}",
        )  # fmt: skip
    limits = [answer["memory"] for answer in answers.values() if answer["memory"]]
    return Workers(
        client,
        answers[first]["software"],
        sum(answer["n_threads"] for answer in answers.values()),
        min(limits, default=None),
        all(answer["machine"] == platform.node() for answer in answers.values()),
        _total_memory(list(answers.values())),
    )


def _total_memory(answers: list[dict[str, Any]]) -> int:
    """Of each machine once, or what its workers may use of it; nothing where that is not known."""
    machines: dict[str, list[dict[str, Any]]] = {}
    for answer in answers:
        machines.setdefault(answer["machine"], []).append(answer)
    total = 0
    for workers in machines.values():
        physical = workers[0]["physical"]
        limits = [each["memory"] and each["memory"] * each["n_threads"] for each in workers]
        total += min(physical, sum(limits)) if all(limits) else physical
    return total


def require_memory(workers: Workers, result_bytes: int) -> int:
    """How many results per thread may exist at once; refused where none would fit.

    A task holds the result that it adds to and the one that it makes.
    """
    if workers.memory is None or 4 * result_bytes <= workers.memory // 2:
        return 2
    if 2 * result_bytes <= workers.memory:
        return 1
    raise InvalidInput(
        f"a worker needs about {readable_bytes(2 * result_bytes)} for each of its threads, and "
        f"has {readable_bytes(workers.memory)}. Start workers of fewer threads or more memory."
    )


@lru_cache(maxsize=1)
def software() -> dict[str, str]:
    """What decides how this process rounds: versions, BLAS and the processor it is made for."""
    libraries = [each for each in threadpool_info() if each["user_api"] == "blas"]
    names = {
        " ".join(str(each.get(key, "")) for key in ("internal_api", "version", "architecture"))
        for each in libraries
    }
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "polyattn": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "processor": platform.machine(),
        "BLAS": ", ".join(sorted(names)),
    }


def require_software(expected: dict[str, str]) -> None:
    """Refuse to work in a process that rounds otherwise: one that joined late, for example."""
    _require_same(software(), expected, tuple(expected), "a worker", "the others")


def _require_same(
    one: dict[str, str], other: dict[str, str], keys: tuple[str, ...], whose: str, others: str
) -> None:
    different = [key for key in keys if one.get(key) != other.get(key)]
    if not different:
        return
    key = different[0]
    hint = (
        "OPENBLAS_CORETYPE makes OpenBLAS the same on all of them."
        if key == "BLAS"
        else "Install the same on all of them."
    )
    raise InvalidInput(
        f"all workers must compute the same bits: {whose} has {key} {one.get(key)}, and {others} "
        f"{other.get(key)}. {hint}"
    )


def _require_client(client: object) -> None:
    try:
        from distributed import Client
    except ImportError:
        raise missing_extra("distributed", "dask") from None
    if not isinstance(client, Client):
        raise InvalidType(f"client must be a distributed.Client; got {shown(client)}.")
    if client.asynchronous:
        raise InvalidInput("client must not be asynchronous; make it with Client(address).")
    if client.status != "running":
        raise InvalidInput(f"client is not connected (its status is {client.status!r}).")


def _asked(client: Any) -> dict[str, dict[str, Any]]:
    """What each worker says of itself, by its address."""
    answers = client.run(_said_of_itself, on_error="return")
    for address, answer in answers.items():
        if isinstance(answer, Exception) and not isinstance(answer, OSError):
            raise InvalidInput(
                f"worker {address} cannot run polyattn ({answer}). Install version {__version__} "
                "on all workers."
            )
    # One that died this very moment is not there.
    return {at: answer for at, answer in answers.items() if not isinstance(answer, OSError)}


def _said_of_itself(dask_worker: Any) -> dict[str, Any]:
    n_threads, limit = dask_worker.state.nthreads, dask_worker.memory_manager.memory_limit
    return {
        "software": software(),
        "machine": platform.node(),
        "n_threads": n_threads,
        "memory": limit // n_threads if limit else None,
        "physical": physical_memory() or 0,
    }
