"""Old and new, asked the same: `make compare BASE=COMMIT`.

The commit is built in an environment of its own (.compare/COMMIT).  Then some thousand random
public calls (calls.py) are made in both trees, turn by turn, so that their times share the load of
the machine.  Every difference in coefficients, verdicts, ranks, outcomes is printed, and per kind
the ratio of times.  A difference is a bug, or a decision: decided.toml names those, with reasons.
"""

import json
import os
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EPS = float(np.finfo(float).eps)
# Two ways through the same sums differ by rounding times what the problem makes of it.
SMALLEST, LARGEST = 1e-8, 1e-3


@click.command()
@click.option("--base", required=True, help="The commit to compare with.")
@click.option("--calls", "n_calls", default=2000, show_default=True, help="How many calls.")
@click.option("--seed", default=1, show_default=True, help="Another seed, other calls.")
@click.option("--only", default="", help="Kinds that begin so, for example certify.")
@click.option("--call", "one", type=int, help="Print both answers to this call alone.")
def main(base: str, n_calls: int, seed: int, only: str, one: int | None) -> None:
    """Makes the same calls in both trees and fails if an answer differs undecided."""
    tree = built(base)
    sides = [Side(tree, tree / ".venv", seed, only), Side(ROOT, ROOT / ".venv", seed, only)]
    decided = tomllib.loads((HERE / "decided.toml").read_text(encoding="utf-8"))["decision"]
    numbers = range(n_calls) if one is None else [one]
    found: dict[bool, list[str]] = {True: [], False: []}
    seconds: dict[str, list[list[float]]] = defaultdict(list)
    for number in numbers:
        order = (0, 1) if number % 2 else (1, 0)
        said: dict[int, dict[str, Any]] = {i: sides[i].ask(number) for i in order}
        kind = said[0]["kind"]
        seconds[kind].append([said[0]["seconds"], said[1]["seconds"]])
        if one is not None:
            click.echo(json.dumps(said, indent=1))
        for field, before, after in differences(said[0]["answers"], said[1]["answers"]):
            known = any(explains(entry, kind, field, before, after) for entry in decided)
            line = f"{kind} {number}: {field}: {before} -> {after}"
            found[known].append(line)
            if not known:
                click.echo(line)
        if number % 100 == 99:
            click.echo(f"  {number + 1}/{n_calls} calls, {len(found[False])} differences", err=True)
    for side in sides:
        side.close()
    click.echo(table(seconds, found[False]))
    click.echo(f"{len(found[True])} differences are decided, {len(found[False])} are not.")
    if found[False]:
        sys.exit(1)


class Side:
    """One tree in a process of its own, asked call by call."""

    def __init__(self, tree: Path, environment: Path, seed: int, only: str) -> None:
        # One thread: what is measured is work, not how many cores happen to be free.
        limits = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [environment / "bin" / "python", HERE / "calls.py", str(seed), only],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | limits | {"PYTHONPATH": str(tree / "src")},
        )

    def ask(self, number: int) -> dict[str, Any]:
        """The answer to the call of this number."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise click.ClickException(f"call {number} ended the interpreter")
        return dict(json.loads(line))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def built(commit: str) -> Path:
    """The tree of a commit, with its environment, made once."""
    name = subprocess.run(
        ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if name.returncode:
        raise click.ClickException(f"{commit} is no commit of this repository")
    tree = ROOT / ".compare" / name.stdout.strip()[:12]
    if not (tree / ".venv" / ".installed").exists():
        tree.mkdir(parents=True, exist_ok=True)
        archive = subprocess.Popen(
            ["git", "archive", name.stdout.strip()], cwd=ROOT, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", tree], stdin=archive.stdout, check=True)
        archive.wait()
        click.echo(f"building {commit}", err=True)
        subprocess.run(["make", "--silent", ".venv/.installed"], cwd=tree, check=True)
    return tree


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The fields in which two answers differ, with both values in short."""
    conditions = [side["condition"] for side in (before, after) if side.get("condition")]
    tolerance = float(np.clip(100 * EPS * max(conditions, default=1.0), SMALLEST, LARGEST))
    found = []
    for field in sorted({*before, *after}):
        old, new = before.get(field), after.get(field)
        if field == "condition" or same(field, old, new, tolerance):
            continue
        found.append((field, short(old), short(new, against=old)))
    return found


def same(field: str, old: Any, new: Any, tolerance: float) -> bool:
    """Whether two values agree; of fields that end in ~ more is allowed: a factor of two."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old["shape"] == new["shape"] and distance(old, new) <= tolerance
    numbers = [isinstance(each, int | float) for each in (old, new)]
    if all(numbers) and not isinstance(old, bool):
        if field.endswith("~"):
            return bool(old / 2 <= new <= old * 2)
        if isinstance(old, int) and isinstance(new, int):
            return old == new
        return bool(abs(old - new) <= tolerance * max(1.0, abs(old), abs(new)))
    return bool(old == new)


def distance(old: dict[str, Any], new: dict[str, Any]) -> float:
    """||new - old|| as a share of the larger; 0 where both have nan at the same places."""
    a, b = np.array(old["values"]), np.array(new["values"])
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    size = max(np.linalg.norm(a), np.linalg.norm(b))
    return float(np.linalg.norm(a - b) / size) if size else 0.0


def short(value: Any, against: Any = None) -> str:
    """A value in a few characters; an array by its distance from another."""
    if not isinstance(value, dict):
        return str(value)[:60]
    if isinstance(against, dict) and against["shape"] == value["shape"]:
        return f"array {value['shape']} at distance {distance(against, value):.1e}"
    return f"array {value['shape']}"


def explains(entry: dict[str, str], kind: str, field: str, before: str, after: str) -> bool:
    """Whether a decision is about this difference; kinds, fields and values may have stars."""
    said = {"kind": kind, "field": field, "before": before, "after": after}
    return all(fnmatchcase(said[name], entry.get(name, "*")) for name in said)


def table(seconds: dict[str, list[list[float]]], differing: list[str]) -> str:
    """Per kind: calls, differences, and how much time new takes of old."""
    counts = Counter(line.split()[0] for line in differing)
    lines = [f"{'kind':20s} {'calls':>6s} {'differ':>7s} {'new/old: median':>16s} {'total':>6s}"]
    for kind, pairs in sorted(seconds.items()):
        old, new = np.array(pairs).T
        lines.append(
            f"{kind:20s} {len(old):6d} {counts[kind]:7d} "
            f"{np.median(new / old):16.2f} {new.sum() / old.sum():6.2f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
