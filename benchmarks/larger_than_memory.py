"""20 times the data in files, the same peak memory; and how fast they are fitted.

Each measurement is a process of its own, whose largest resident size the system reports as VmHWM
(Linux).  Not ru_maxrss: that of a child begins with the size of the process that started it.  One
child keeps all that it reads, to see that the measurement would notice, and one imports what the
others do and nothing else.

What a fit from files costs is held against reading all chunks, which checks their numbers, and
summarising them, and nothing else: seconds of the processor on one thread, the fastest of REPEATS
runs each, in turn.

Answers are those of a fit in memory to the same numbers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from glob import glob
from io import StringIO
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from common import peak_resident, require, verdict
from numpy.typing import NDArray

import polyattn as pa
from polyattn.features.summaries import SeenSequences
from polyattn.form.layout import Layout
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.sources import Chunk
from polyattn.sources.arrow_tables import as_arrow

N_DIMS, N_TOKENS, N_OUTPUTS = 6, 100, 2
TIMES, REPEATS = 20, 3
MOST_BYTES, MOST_GROWTH, LEAST_THROUGHPUT = 300 << 20, 1.10, 0.60
MODEL = "model.safetensors"

# The sums of a fit and those of the chunks that are being added: of features, targets and both.
WIDTH = Layout.plain(N_DIMS).n_features + N_OUTPUTS
SUMS = 2 * 8 * WIDTH**2

TOKENS = [f"x{j}" for j in range(N_DIMS)]
TARGETS = [f"y{j}" for j in range(N_OUTPUTS)]


class Format(NamedTuple):
    """Files of one kind: their suffix, the sequences of one, how it is written and scanned."""

    suffix: str
    n_sequences: int
    save: Callable[[Path, NDArray, NDArray, int], None]
    columns: dict[str, Any]


def save_npz(path: Path, X: NDArray, Y: NDArray, _: int) -> None:
    np.savez(path, X=X, Y=Y)


def save_parquet(path: Path, X: NDArray, Y: NDArray, first: int) -> None:
    from pyarrow import parquet

    parquet.write_table(long_table(X, Y, first), path)


def save_csv(path: Path, X: NDArray, Y: NDArray, first: int) -> None:
    import pyarrow.csv

    pyarrow.csv.write_csv(long_table(X, Y, first), path)


def long_table(X: NDArray, Y: NDArray, first: int) -> Any:
    """One row per token; the targets of a sequence stand in each of its rows."""
    from pyarrow import Table

    names = np.repeat(np.arange(first, first + len(X)), N_TOKENS)
    columns = [names, *X.reshape(-1, N_DIMS).T, *np.repeat(Y, N_TOKENS, axis=0).T]
    return Table.from_arrays(
        [as_arrow(column) for column in columns], names=["id", *TOKENS, *TARGETS]
    )


COLUMNS: dict[str, Any] = {"sequence": "id", "tokens": TOKENS, "targets": TARGETS}
FORMATS = {
    "npz": Format(".npz", 16_384, save_npz, {}),
    "parquet": Format(".parquet", 16_384, save_parquet, COLUMNS),
    "csv": Format(".csv", 4_096, save_csv, COLUMNS),
}


def main(chosen: list[str]) -> None:
    print(f"d={N_DIMS} n={N_TOKENS}, {TIMES} files against one; the sums take {SUMS / 1e6:.1f} MB")
    alone = {name: in_child("import", name, "") for name in ("npz", "parquet")}
    print(
        f"polyattn imported, and nothing done: {mebibytes(alone['npz'])} MiB; "
        f"with pyarrow {mebibytes(alone['parquet'])} MiB"
    )
    for name in chosen or FORMATS:
        with tempfile.TemporaryDirectory() as folder:
            small, large = write(name, Path(folder))
            if name == "npz":
                control(small, large)
            for work in ("fit", "certify", "predict"):
                compare_memory(name, work, small, large)
            compare_throughput(name, large)


def write(name: str, folder: Path) -> tuple[str, str]:
    """Patterns of one file, and of all; beside them a model of the first one."""
    format_ = FORMATS[name]
    layer = pa.data.planted(2, N_TOKENS, N_DIMS, n_outputs=N_OUTPUTS, random_state=0).layer
    for number in range(TIMES):
        X, Y = drawn(layer, number, format_.n_sequences)
        first = number * format_.n_sequences
        format_.save(folder / f"part-{number:02d}{format_.suffix}", X, Y, first)
        if number == 0:
            pa.save(pa.fit(X, Y), folder / MODEL)
    return str(folder / f"part-00{format_.suffix}"), str(folder / f"part-*{format_.suffix}")


def drawn(layer: Any, number: int, n_sequences: int) -> tuple[NDArray, NDArray]:
    """The sequences of a file, and noisy targets of their last tokens."""
    rng = np.random.default_rng(number)
    X = rng.standard_normal((n_sequences, N_TOKENS, N_DIMS))
    Y = layer(X)[:, -1]
    return X, Y + np.std(Y) * rng.standard_normal(Y.shape)


def control(small: str, large: str) -> None:
    """Whether memory that grows is seen to grow."""
    growth = in_child("keep", "npz", large)["bytes"] / in_child("keep", "npz", small)["bytes"]
    require(f"what keeps all it reads grows {growth:.1f} times", growth > 3)


def compare_memory(name: str, work: str, small: str, large: str) -> None:
    one, all_ = in_child(work, name, small), in_child(work, name, large)
    n_sequences = FORMATS[name].n_sequences
    print(
        f".{name} {work}: {one['read'] / 1e6:.0f} MB and {all_['read'] / 1e6:.0f} MB to read; peak "
        f"{mebibytes(one)} MiB for one, {mebibytes(all_)} MiB for {TIMES}"
    )
    counts = (one["rows"], all_["rows"])
    require("the work was done on all sequences", counts == (n_sequences, TIMES * n_sequences))
    if work == "fit":
        model = pa.load(Path(small).parent / MODEL)
        away = np.abs(np.array(one["answer"]) - model.coef).max() / np.abs(model.coef).max()
        require(f"coefficients of one file as in memory, to {away:.0e}", away < 1e-9)
    elif work == "certify":
        require("identifiable in both", {one["answer"], all_["answer"]} == {"identifiable"})
    growth = all_["bytes"] / one["bytes"]
    verdict(f"peak memory grows by at most {MOST_GROWTH - 1:.0%}", growth <= MOST_GROWTH)
    verdict("at most 300 MiB and the sums", all_["bytes"] <= MOST_BYTES + SUMS)


def compare_throughput(name: str, large: str) -> None:
    runs = [
        [in_child(work, name, large, n_threads=1)["seconds"] for work in ("fit", "summarise")]
        for _ in range(REPEATS)
    ]
    fit, alone = np.min(runs, axis=0)
    print(
        f".{name}, one thread: fit {fit:.2f} s of the processor, reading and summarising alone "
        f"{alone:.2f} s ({alone / fit:.0%})"
    )
    verdict("at least 60 % of the throughput of reading", alone / fit >= LEAST_THROUGHPUT)


def mebibytes(found: dict[str, Any]) -> str:
    return f"{found['bytes'] / 2**20:.0f}"


def in_child(work: str, name: str, pattern: str, n_threads: int | None = None) -> dict[str, Any]:
    """What a process of its own measured."""
    threads = {} if n_threads is None else {"OPENBLAS_NUM_THREADS": str(n_threads)}
    command = [sys.executable, __file__, work, name, pattern]
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | threads
    ).stdout
    found: dict[str, Any] = json.loads(printed)
    return found


def measure(work: str, name: str, pattern: str) -> None:
    """The child: do the work, print what it took."""
    began = process_time()
    found = {} if work == "import" else WORK[work](name, pattern)
    if name != "npz":
        import pyarrow.csv
        import pyarrow.parquet  # noqa: F401 - to be measured
    print(json.dumps(found | {"seconds": process_time() - began, "bytes": peak_resident()}))


def scanned(name: str, pattern: str) -> pa.Source:
    return pa.scan(pattern, **FORMATS[name].columns)


def fit(name: str, pattern: str) -> dict[str, Any]:
    source = scanned(name, pattern)
    result = pa.fit(source)
    rows = result.statistics.n_rows if result.statistics is not None else 0
    return {"rows": rows, "answer": result.coef.tolist(), "read": source.n_bytes}


def certify(name: str, pattern: str) -> dict[str, Any]:
    source = scanned(name, pattern)
    found = pa.certify(source)
    return {"rows": found.n_rows, "answer": found.verdict, "read": source.n_bytes}


def predict(name: str, pattern: str) -> dict[str, Any]:
    """``polyattn predict`` into a table of the format, or a Parquet file."""
    from polyattn.cli.main import main as run

    folder = Path(pattern).parent
    output = folder / ("predictions.csv" if name == "csv" else "predictions.parquet")
    tokens = [] if name == "npz" else ["--sequence", "id", "--tokens", ",".join(TOKENS)]
    files = sorted(glob(pattern))
    printed = StringIO()
    sys.argv = ["polyattn", "predict", str(folder / MODEL), *files, *tokens]
    sys.argv += ["-o", str(output), "--json"]
    with redirect_stdout(printed):
        try:
            run()
        except SystemExit as ended:
            if ended.code:
                raise
    output.unlink()
    rows = json.loads(printed.getvalue())["n_rows"]
    return {"rows": rows, "read": sum(os.path.getsize(file) for file in files)}


def keep(name: str, pattern: str) -> dict[str, Any]:
    kept = [chunk.read_inputs() for chunk in scanned(name, pattern).chunks]
    return {"rows": len(kept)}


@single_threaded_blas()
def summarise(name: str, pattern: str) -> dict[str, Any]:
    """Read and summarise all chunks, of which one at a time is in memory."""
    source = scanned(name, pattern)
    return {"rows": sum(map(summarised, source.chunks)), "read": source.n_bytes}


def summarised(chunk: Chunk) -> int:
    content = chunk.read("last")
    if content is None:
        return 0
    blocks = SeenSequences(Layout.plain(N_DIMS), content.batch).blocks()
    return sum(block.stop - block.first for block in blocks)


WORK: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "fit": fit, "certify": certify, "predict": predict, "keep": keep, "summarise": summarise,
}  # fmt: skip


if __name__ == "__main__":
    measure(*sys.argv[1:]) if len(sys.argv) == 4 else main(sys.argv[1:])
