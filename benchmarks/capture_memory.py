"""Ten times the tokens through a captured module, the same peak memory.

Each measurement is a process of its own: batches are drawn, go through a layer of torch whose
attention is captured, and are forgotten.  The largest resident size is what the system reports as
VmHWM (Linux), torch included; beside it stands what was added after everything was loaded and one
batch had gone through.  One child keeps all that it sees, to see that the measurement would notice.

Answers are those of statistics of the same sequences in memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from time import process_time
from typing import Any

import numpy as np
import torch
from common import peak_resident, require, verdict
from torch import Tensor, nn

import polyattn as pa

N_DIMS, N_TOKENS, N_SEQUENCES = 32, 64, 32
N_BATCHES, TIMES, MOST_GROWTH = 100, 10, 1.10
WORK = ("moments", "triangular", "source")


def main() -> None:
    batch = N_SEQUENCES * N_TOKENS
    print(
        f"tokens of {N_DIMS} coordinates in sequences of {N_TOKENS}; {N_BATCHES * batch:,} tokens "
        f"against {TIMES * N_BATCHES * batch:,}: {seen_megabytes(1):.0f} and "
        f"{seen_megabytes(TIMES):.0f} MB of inputs and outputs"
    )
    kept = [in_child("keep", times)["bytes"] for times in (1, TIMES)]
    require(f"what keeps all it sees grows {kept[1] / kept[0]:.1f} times", kept[1] > 1.5 * kept[0])
    for into in WORK:
        compare(into)


def seen_megabytes(times: int) -> float:
    return times * N_BATCHES * N_SEQUENCES * N_TOKENS * 2 * N_DIMS * 8 / 1e6


def compare(into: str) -> None:
    one, many = in_child(into, 1), in_child(into, TIMES)
    print(
        f"into={into!r}: peak {one['bytes'] / 2**20:.0f} MiB and {many['bytes'] / 2**20:.0f} MiB, "
        f"of which added {one['added'] / 2**20:.1f} and {many['added'] / 2**20:.1f}; "
        f"{many['seconds'] / many['rows'] * 1e6:.1f} microseconds per token, "
        f"{many['alone'] / many['rows'] * 1e6:.1f} without capturing"
    )
    rows = N_BATCHES * N_SEQUENCES * N_TOKENS
    require("all tokens were counted", (one["rows"], many["rows"]) == (rows, TIMES * rows))
    require(f"coefficients as in memory, to {one['away']:.0e}", one["away"] < 1e-12)
    growth = many["bytes"] / one["bytes"]
    verdict(f"peak memory grows by {growth - 1:.1%}, at most 10 %", growth <= MOST_GROWTH)


def in_child(into: str, times: int) -> dict[str, Any]:
    """What a process of its own measured."""
    command = [sys.executable, __file__, into, str(times)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(printed)
    return found


def measure(into: str, times: int) -> None:
    """The child: run the model, print what it took."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(N_DIMS, 4, 2 * N_DIMS, dropout=0.0, batch_first=True)
    maps = np.linalg.qr(np.random.default_rng(0).standard_normal((N_DIMS, 5)))[0]
    form = pa.Form(mode="full", query=maps, key=maps, value=maps, bias=True)
    began = process_time()
    run(model, times)
    alone = process_time() - began
    before = peak_resident()
    began = process_time()
    found: dict[str, Any]
    if into == "keep":
        kept: list[Any] = []
        with model.self_attn.register_forward_hook(lambda _, args, out: kept.append((args, out))):
            run(model, times)
        found = {"rows": len(kept)}
    else:
        with pa.interop.capture(model, form, name="self_attn", into=into) as fed:
            run(model, times)
        found = {"rows": times * N_BATCHES * N_SEQUENCES * N_TOKENS, "fed": fed}
    measured = {"bytes": peak_resident(), "seconds": process_time() - began, "alone": alone}
    if into != "keep":
        # After the measurement: sums of a source are made, and the same data in memory.
        fed = found.pop("fed")
        sums = pa.Moments(N_DIMS, N_DIMS, form=form).update(fed) if into == "source" else fed
        found["rows"] = sums.n_rows
        found["away"] = away(model, form, sums) if times == 1 else None
    print(json.dumps(found | measured | {"added": measured["bytes"] - before}))


@torch.no_grad()
def run(model: nn.Module, times: int) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(times * N_BATCHES):
        model(drawn(generator))


def drawn(generator: torch.Generator) -> Tensor:
    return torch.randn(N_SEQUENCES, N_TOKENS, N_DIMS, generator=generator)


@torch.no_grad()
def away(model: nn.Module, form: pa.Form, sums: Any) -> float:
    """How far coefficients are from those of all sequences in memory, beside the largest."""
    seen: list[Any] = []
    with model.self_attn.register_forward_hook(lambda _, args, out: seen.append((args[0], out[0]))):
        run(model, 1)
    X, Y = (torch.cat(each).double().numpy() for each in zip(*seen, strict=True))
    whole = type(sums)(N_DIMS, N_DIMS, form=form).update(X, Y)
    mine, theirs = (pa.fit(statistics=each).coef for each in (sums, whole))
    return float(np.abs(mine - theirs).max() / np.abs(theirs).max())


if __name__ == "__main__":
    measure(sys.argv[1], int(sys.argv[2])) if len(sys.argv) == 3 else main()
