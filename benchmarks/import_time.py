"""import polyattn against import sklearn.linear_model, each in fresh interpreters."""

from __future__ import annotations

import subprocess
import sys
import time

from common import require, verdict

HEAVY = ("torch", "matplotlib", "dask")


def seconds_of(module: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    return time.perf_counter() - start


def main() -> None:
    modules = ("polyattn", "sklearn.linear_model")
    best = dict.fromkeys(modules, float("inf"))
    for _ in range(9):
        for module in modules:
            best[module] = min(best[module], seconds_of(module))
    print("import time, fresh interpreter, best of 9")
    for module, seconds in best.items():
        print(f"  {module:22s} {seconds:.3f} s")
    code = f"import sys, polyattn; print([m for m in {HEAVY} if m in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()
    require(f"heavy modules loaded: {loaded}", loaded == "[]")
    ratio = best["polyattn"] / best["sklearn.linear_model"]
    verdict(f"{ratio:.2f}x the time of sklearn.linear_model (claim: at most 1.3x)", ratio <= 1.3)


if __name__ == "__main__":
    main()
