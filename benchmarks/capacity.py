"""How time and memory grow with N, n, d, e: exponents fitted to measurements beside those promised.

Each step runs on one thread of a process of its own, in sizes that differ in one letter: N
sequences of n tokens of d coordinates, and e outputs.  An exponent is the slope of the logarithm
of what was measured; what is promised is that of the formula in the docstring over the same sizes.
A growth beyond the tolerance ends the script with an error.  Then whole fits, beside what
polyattn.solve.plan expects of them.

    python benchmarks/capacity.py                       measures, compares and prints: 6 minutes
    python benchmarks/capacity.py --out docs/capacity   writes what docs/capacity.md shows, too
    python benchmarks/capacity.py --quick               small sizes: whether the script works
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from capacity_figure import draw
from capacity_steps import FITS, QUICK_FITS, STEPS, Shape, fit_by, random_data
from common import measured_alone, require, verdict

import polyattn as pa
from polyattn.report.figures import drawing
from polyattn_papers.reproduction.environment import environment

# An exponent may be so much above the promise; below it by this times the promise, where that is
# more than one, since terms of lower order hold it down.  Small sizes show little else.
TOLERANCE, QUICK_TOLERANCE = 0.25, 1.0

# Estimates of a plan hold to within this factor, of times that the processor can measure.
PLAN_FACTOR, SHORTEST = 3.0, 0.01

# What several processes gather: some 10 s of work for one of them.
WORKERS_SHAPE, N_SHARDS, N_WORKERS = Shape(128000, 20, 16, 1), 32, (1, 2)

# The data of the worked example: 12.8 TB.
OUTLOOK_SHAPE, OUTLOOK_WORKERS = Shape(10**9, 100, 16, 1), (1, 2, 4, 8, 16, 32, 64, 100, 256)

Point = dict[str, Any]


def measure_steps(quick: bool) -> list[Point]:
    """A point for each size of each sweep."""
    found = []
    for name, step in STEPS.items():
        for sweep in (step.quick,) if quick else step.sweeps:
            for shape in sweep.shapes():
                here = {"step": name, "over": sweep.letter, **shape._asdict()}
                found.append(here | measured(partial(step.prepare, shape)))
    return found


def measure_fits(quick: bool) -> list[Point]:
    """Whole fits; targets are noise, which no layer explains."""
    return [
        {"solver": solver, **shape._asdict(), **measured(partial(fit_by, solver, shape))}
        for solver, shapes in (QUICK_FITS if quick else FITS).items()
        for shape in shapes
    ]


def with_plan(fit: Point) -> Point:
    """A fit with what is expected of it; data in memory are not read."""
    plan = pa.solve.plan(fit["N"], fit["d"], fit["e"], fit["solver"], n_tokens=fit["n"])
    seconds = rounded(plan.seconds - plan.steps["reading"])
    return fit | {"expected_seconds": seconds, "expected_megabytes": rounded(plan.bytes / 2**20)}


def measure_workers(quick: bool) -> list[Point]:
    """Moments of the same files on 1 and 2 processes; the bits must agree.

    ``seconds`` are those of the processor in the busiest of them, ``wall_seconds`` what passed.
    """
    if quick:
        return []
    found, sums = [], []
    with TemporaryDirectory() as folder:
        source = write_shards(Path(folder), WORKERS_SHAPE, N_SHARDS)
        for count in N_WORKERS:
            moments, busiest, passed = gathered_on(source, count)
            sums.append(moments.gram)
            point = {"workers": count, **WORKERS_SHAPE._asdict(), "seconds": rounded(min(busiest))}
            found.append(point | {"wall_seconds": rounded(min(passed))})
    same = all(np.array_equal(sums[0], each) for each in sums)
    require(f"the same bits from {N_WORKERS} workers", same)
    return found


def write_shards(folder: Path, shape: Shape, count: int) -> Any:
    """A source of so many files that together have this shape."""
    X, Y = random_data(shape)
    for number, some in enumerate(np.array_split(np.arange(shape.N), count)):
        np.savez(folder / f"part-{number:03d}.npz", X=X[some], Y=Y[some])
    return pa.scan(str(folder / "part-*.npz"))


def gathered_on(source: Any, count: int) -> tuple[Any, list[float], list[float]]:
    """Moments by so many processes of one thread; seconds of the busiest, and those that passed."""
    from distributed import Client, LocalCluster

    busiest, passed = [], []
    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, processes=True, **quiet) as cluster,
        Client(cluster) as client,
    ):
        for _ in range(4):
            before, start = client.run(time.process_time), time.perf_counter()
            moments = pa.Moments(source.n_dims, source.n_outputs).update(source, client=client)
            passed.append(time.perf_counter() - start)
            after = client.run(time.process_time)
            busiest.append(max(after[worker] - before[worker] for worker in after))
    # In the first run the workers import.
    return moments, busiest[1:], passed[1:]


def outlook() -> list[Point]:
    """What is planned for the data of the worked example, on more and more workers."""
    shape, found = OUTLOOK_SHAPE, []
    for count in OUTLOOK_WORKERS:
        plan = pa.solve.plan(shape.N, shape.d, shape.e, n_tokens=shape.n, n_workers=count)
        steps = {step: rounded(seconds) for step, seconds in plan.steps.items()}
        found.append({"workers": count, "seconds": rounded(plan.seconds), "steps": steps})
    return found


def measured(prepare: Callable[[], Any]) -> Point:
    return {name: rounded(value) for name, value in measured_alone(prepare)._asdict().items()}


def rounded(value: float) -> float:
    """To four digits."""
    return float(f"{value:.4g}")


def best_of(rounds: list[list[Point]]) -> list[Point]:
    """What was least in several rounds of the same points; of the slowest runs the largest."""
    return [
        same[0]
        | {name: min(each[name] for each in same) for name in ("seconds", "megabytes")}
        | {"slowest": max(each["slowest"] for each in same)}
        for same in zip(*rounds, strict=True)
    ]


def growths(points: list[Point], tolerance: float) -> list[Point]:
    """Exponents of seconds and megabytes over each letter beside those promised."""
    found = []
    for name, over in dict.fromkeys((point["step"], point["over"]) for point in points):
        step = STEPS[name]
        own = [point for point in points if (point["step"], point["over"]) == (name, over)]
        shapes = [Shape(*(point[letter] for letter in Shape._fields)) for point in own]
        for quantity, formula in (("seconds", step.flops), ("megabytes", step.numbers)):
            if formula is None:
                continue
            here = exponent(own, over, [point[quantity] for point in own])
            promised = exponent(own, over, [formula(shape) for shape in shapes])
            # Of memory a fixed part outweighs what grows, and nobody minds.
            least = promised - tolerance * max(1.0, promised) if quantity == "seconds" else -np.inf
            holds = bool(least <= here <= promised + tolerance)
            found.append(
                {"step": name, "over": over, "quantity": quantity}
                | {"exponent": here, "promised": promised, "holds": holds}
            )
    return found


def exponent(points: list[Point], over: str, values: list[float]) -> float:
    """The slope of log(values) over log(sizes), by least squares, to two decimals."""
    sizes = [point[over] for point in points]
    # No minus before a zero.
    return round(float(np.polyfit(np.log(sizes), np.log(values), 1)[0]), 2) + 0.0


def is_near(fit: Point) -> bool:
    """Whether a fit took about as long as was expected."""
    ratio = fit["expected_seconds"] / fit["seconds"]
    return 1 / PLAN_FACTOR <= ratio <= PLAN_FACTOR or fit["seconds"] < SHORTEST


def show(found: dict[str, Any]) -> bool:
    """Print everything; whether all growths are as promised."""
    print("growth: measured (promised)")
    for each in found["growth"]:
        over = each["over"]
        words = f"{each['step']:12s} {each['quantity']:9s} {over}^{each['exponent']:.2f}"
        verdict(f"{words} ({over}^{each['promised']:.2f})", each["holds"])
    print("fits: measured beside the plan")
    for fit in found["fits"]:
        shape = ", ".join(f"{letter}={fit[letter]}" for letter in Shape._fields)
        words = f"{fit['solver']:9s} {shape}: {fit['seconds']:.3g} s, {fit['megabytes']:.0f} MB; "
        words += f"expected {fit['expected_seconds']:.3g} s, {fit['expected_megabytes']:.0f} MB"
        verdict(words, is_near(fit))
    for each in found["workers"]:
        words = f"{each['seconds']:.1f} s of the busiest, {each['wall_seconds']:.1f} s passed"
        print(f"moments on {each['workers']} processes: {words}")
    return all(each["holds"] for each in found["growth"])


def write(found: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    (folder / "measured.json").write_text(text, encoding="utf-8")
    figure = draw(found)
    with drawing():
        figure.savefig(folder / "growth.svg", metadata={"Date": None})


def measure(quick: bool, n_rounds: int) -> dict[str, Any]:
    """All measurements, and with what they were made."""
    rounds = range(n_rounds)
    return {
        "profile": "quick" if quick else "full",
        "rounds": n_rounds,
        "surroundings": environment(),
        "points": best_of([measure_steps(quick) for _ in rounds]),
        "fits": best_of([measure_fits(quick) for _ in rounds]),
        "workers": measure_workers(quick),
    }


def compared(found: dict[str, Any]) -> dict[str, Any]:
    """Measurements beside what is promised and planned today."""
    tolerance = QUICK_TOLERANCE if found["profile"] == "quick" else TOLERANCE
    return found | {
        "tolerance": tolerance,
        "steps": {name: {"time": s.time, "memory": s.memory} for name, s in STEPS.items()},
        "growth": growths(found["points"], tolerance),
        "fits": [with_plan(fit) for fit in found["fits"]],
        "outlook": outlook(),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, help="a folder for measured.json and the figure")
    parser.add_argument("--rounds", type=int, default=1, help="take the best of so many rounds")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--measured", type=Path, help="compare what this file holds, not again")
    given = parser.parse_args(arguments)
    if given.measured is None:
        found = measure(given.quick, given.rounds)
    else:
        found = json.loads(given.measured.read_text(encoding="utf-8"))
    found = compared(found)
    holds = show(found)
    if given.out is not None:
        write(found, given.out)
    if not holds:
        sys.exit("some growth is not as promised")


if __name__ == "__main__":
    main()
