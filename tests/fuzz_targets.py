"""Everything that reads files, with good files, ways to spoil them, and uses of what was read.

Run as a script it mutates, loads and uses, and prints what happened as JSON: the count, the
exceptions that are not polyattn's, the slowest load and the growth of memory.
"""

import argparse
import contextlib
import json
import os
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

import mutations
import polyattn as pa
from polyattn.certify.check import objections
from polyattn.cli.console import emit, shown
from polyattn.cli.io import read_data
from polyattn.errors import PolyattnError
from polyattn.estimators.description import described
from polyattn.programs.machines import load_machine, save_machine
from polyattn.programs.machines.files import content_of
from polyattn.programs.machines.format.yaml_syntax import write_yaml
from polyattn.report.page import fill
from polyattn.storage import record_of
from polyattn_papers.reproduction.digests import with_digest
from polyattn_papers.reproduction.environment import merge_environments
from polyattn_papers.reproduction.experiment import Experiment
from polyattn_papers.reproduction.finished_cells import FinishedCell, FinishedCells
from polyattn_papers.reproduction.result import TABLE, read_table
from rotary_cases import random_rotary
from saved_models import MODELS, answers
from source_cases import memory_source

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 4, 2))
Y = pa.data.random_layer(2, 2, mode="last")(X) + 0.1 * RNG.standard_normal((40, 2))
Y_CAUSAL = RNG.standard_normal((40, 4, 2))
SETTINGS = {"number": 3, "kind": "smoke"}

# A load may take so long, and so much memory, whatever the file.
MOST_SECONDS, MOST_BYTES = 10.0, 1 << 30


@dataclass(frozen=True)
class Target:
    """A loader: good files, mutations of them beside those of bytes, and load with use."""

    name: str
    suffix: str
    corpus: list[bytes]
    forge: list[Callable[[np.random.Generator, bytes], bytes]]
    use: Callable[[Path], Any]

    def mutant(self, rng: np.random.Generator) -> bytes:
        """Another file."""
        good = mutations.pick(rng, self.corpus)
        way = mutations.any_bytes if rng.integers(3) == 0 else mutations.pick(rng, self.forge)
        return way(rng, good)


def targets() -> dict[str, Target]:
    """All loaders by name."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        saved = [_saved(each, place / "saved") for each in _things()]
        certified = [_saved(each, place / "certified") for each in _certificates()]
        machines = [_machine(each, place / "machine.json") for each in _machines()]
        array = _arrays(place)
        cell = _cell(place)
        checkpoint = _checkpoint(place / "state")
    plain = [content_of(each) for each in _machines()]
    yaml = [write_yaml(each).encode() for each in plain]
    seal, digest = mutations.with_digest("seal"), mutations.with_digest("digest")
    table = json.dumps(with_digest(_table())).encode()
    found = [
        Target("saved", ".safetensors", saved, [mutations.record], use_saved),
        Target("certificate", ".json", certified, [mutations.document(seal)], use_saved),
        Target("machine.json", ".json", machines, [mutations.document(dict)], use_machine),
        Target("machine.yaml", ".yaml", yaml, [_as_yaml(plain)], use_machine),
        Target("npy", ".npy", array["npy"], [mutations.npy], use_data),
        Target("npz", ".npz", array["npz"], [mutations.npz], use_data),
        Target("cell", ".json", [cell], [mutations.document(digest)], use_cell),
        Target("checkpoint", ".safetensors", [checkpoint], [mutations.record], use_checkpoint),
        Target("table", ".json", [table], [mutations.document(digest)], use_table),
    ]
    return {each.name: each for each in found}


# Use ---------------------------------------------------------------------------------------------


def use_saved(path):
    """Load anything that was saved, and do with it what its kind is for."""
    thing = pa.load(path)
    repr((repr(thing), str(thing)))
    thing._repr_html_()
    told = described(thing)
    emit({}, shown(told), as_json=False)
    json.dumps(told.to_full_dict(), allow_nan=False)
    kinds = {
        pa.FitResult: _use_fit, pa.LearningCurve: _use_curve, pa.Audit: _use_audit,
        pa.Forecast: _use_forecast, pa.LearnedSoftmax: _use_learned,
        pa.QueryResult: _use_queried, pa.Moments: _use_sums, pa.TriangularFactor: _use_sums,
        pa.programs.Compiled: _use_program, pa.LinearAttention: _use_layer,
        pa.SoftmaxAttention: _use_layer, pa.Certificate: _use_certificate,
        pa.programs.LearnedRules: _use_learned_program,
        pa.programs.LearnedCoefficients: _use_learned_program,
        pa.programs.ProgramCertificate: _use_program_certificate,
    }  # fmt: skip
    kinds.get(type(thing), _use_model)(thing)


def _use_model(model):
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    n_dims = next((each.n_features_in_ for each in steps if not isinstance(each, str)), 1)
    data = np.ones((2, 3, n_dims)) if n_dims < 1000 else None
    record_of(model)
    if data is not None:
        answers(model, data)


def _use_layer(layer):
    n_context_dims = getattr(layer, "n_context_dims", None)
    beside = {} if n_context_dims is None else {"context": np.ones((2, 3, n_context_dims))}
    layer(np.ones((2, 3, layer.n_dims)), **beside)
    layer.to_record()


def _use_fit(result):
    result.predict(np.ones((2, 3, result.n_dims)))
    _use_layer(result.layer)
    result.to_record()
    if result.ridge_path is not None:
        repr(result.ridge_path.best)
    if result.statistics is not None:
        _use_sums(result.statistics)


def _use_curve(curve):
    repr((curve.outcome, curve.table()))
    curve.to_record()


def _use_forecast(ahead):
    repr((ahead.outcome, ahead.values, ahead.valid_steps, ahead.exponents))
    ahead.to_record()


def _use_sums(sums):
    (sums + sums.empty()).to_record()
    repr((sums.contents, sums.cancellation))
    if isinstance(sums, pa.Moments):
        repr(sums.gram)
    pa.fit(statistics=sums)


def _use_learned(learned):
    _use_layer(learned.layer)
    learned.to_record()
    repr(learned.recovered)


def _use_queried(queried):
    if queried.layer is not None:
        _use_layer(queried.layer)
    queried.to_record()
    repr((queried.recovered, queried.error_text))


def _use_program(program):
    program.to_record()
    if program.n_heads * program.n_dims**2 < 1 << 20:
        repr(program.layer)
    encoding = program.schema.encoding
    if encoding is not None and program.n_dims < 1 << 12:
        given, options = encoding.sample(np.random.default_rng(0))
        program.run(*given, **options)


def _use_audit(audit):
    audit.to_record()
    repr((audit.sentence, audit.relative_distance))
    _use_certificate(audit.certificate)


def _use_learned_program(learned):
    learned.to_record()
    if learned.n_dims < 100 and learned.n_rows < 1000:
        encoding = learned.schema.encoding
        repr(learned.certificate)
        if encoding is not None:
            given, options = encoding.sample(np.random.default_rng(0))
            learned.run(*given, abstain=True, **options)


def _use_program_certificate(certificate):
    certificate.to_record()


def _use_certificate(certificate):
    if certificate.n_dims < 10:
        objections(certificate, X)


def use_machine(path):
    """Load a machine, run it for some steps, and write it again."""
    named = load_machine(path)
    repr((named.title, content_of(named)))
    if named.kind == "dfa":
        named.machine.run([0] * 5)
    elif named.machine.n_letters:
        named.machine.run([0] * 8, max_steps=20)
    save_machine(named, path.with_suffix(".json"))


def use_data(path):
    """Read sequences and targets, and fit where they are small."""
    data = read_data(path)
    sequences = data.sequences()
    repr(data.weights)
    if "Y" in data.arrays:
        mode = "last" if data.arrays["Y"].ndim < 3 else "causal"
        targets = data.targets(mode)
        if sequences.n_dims <= 3 and len(sequences) <= 50:
            pa.fit(sequences, targets, mode=mode, sample_weight=data.weights)


def use_checkpoint(path):
    """Go on from a checkpoint."""
    _use_sums(pa.Moments(2, 1).update(memory_source(70), checkpoint=path))


def use_cell(path):
    """Read the cell of an experiment, and put its rows into a table."""
    cells = _cells(path.parent)
    path.replace(cells._path(SETTINGS))
    cell = cells.read(SETTINGS)
    merge_environments([cell.surroundings])
    json.dumps([SETTINGS | row for row in cell.rows], allow_nan=False)
    repr(cell.seconds + 1.0)


def use_table(path):
    """Read the table of an experiment, and write its line of the index."""
    folder = path.parent / "squares"
    folder.mkdir(exist_ok=True)
    target = folder / "table.json"
    path.replace(target)
    table = read_table(target)
    if table is not None:
        fill("index", "polyattn_papers.reproduction", tables=[table])


# Good files --------------------------------------------------------------------------------------

FORM = pa.Form(
    mode="causal", decay=[0.5, 0.9], query=np.ones((3, 2)), key=[1], skip=True, intercept=True
)


def _difference():
    """Moments from which something was taken out, and something without a name was added."""
    some = pa.Moments(2, 2).update(X[:10], Y[:10], chunk="b")
    return ((pa.Moments(2, 2).update(X[10:], Y[10:], chunk="a") + some) - some).update(X, Y)


def _checkpoint(path):
    pa.Moments(2, 1).update(memory_source(70), checkpoint=path)
    return path.read_bytes()


FUZZED_MODELS = (
    "regressor of a form", "regressor of few rows", "softmax regressor", "classifier",
    "classifier of booleans", "scaler", "imputer", "pipeline", "pipeline with nothing",
)  # fmt: skip


def _things():
    P = pa.programs
    task = pa.data.planted_softmax(60, 3, 2, random_state=0)
    return [
        pa.data.random_layer(3, 2),
        pa.data.random_layer(3, 2, form=FORM, n_context_dims=2),
        pa.SoftmaxAttention(np.eye(3), np.ones((3, 2)), "causal", bias=True),
        random_rotary("causal", bias=True),
        pa.Moments(2, 2).update(X, Y),
        pa.Moments(2, 2, "full", bias=True).update(X, Y_CAUSAL),
        pa.TriangularFactor(2, 2).update(X, Y),
        _difference(),
        pa.TriangularFactor(2, 2).update(X, Y, chunk="a").update(X, Y, chunk="b", forget=0.5),
        pa.fit(X, Y),
        pa.fit(X, Y, ridge="loo"),
        pa.fit(X, Y, n_heads=1, solver="dual"),
        pa.learning_curve(X, Y, [4, 20], n_repeats=2),
        pa.audit(pa.data.random_layer(2, 2, mode="last"), X, Y),
        pa.learn_softmax(task.X, task.Y),
        pa.learn_from_queries(task.layer, 2),
        pa.learn_from_queries(task.layer, 2, max_queries=1),
        P.compile(P.universal_dfa(2, 3, 4)),
        P.compile(P.universal_turing_machine(2, 2, 4)),
        P.compile(P.fixed_dfa(P.machines.parity(), 3)),
        own_program(),
        *learned_programs(),
        *(MODELS[name]() for name in FUZZED_MODELS),
    ]


def learned_programs():
    """What was learned from a few traces, in both ways, and a certificate of it."""
    P = pa.programs
    memory = P.associative_memory(2, 2)
    traces = P.traces(memory, 6)
    coefficients = P.learn(memory.schema, pa.data.with_wrong_labels(traces), "coefficients")
    fresh = P.traces(memory, 60, random_state=1)
    return [P.learn(memory.schema, traces), coefficients, coefficients.certify(fresh=fresh)]


def own_program():
    """A compiled program that is not of the library."""
    P = pa.programs
    time, node = P.line("time", 5, landmarks=1), P.symbols("node", 3).plus("END")
    here = P.Attribute("here", (node,), whole=("NOWHERE",))
    schema = P.Schema((P.Attribute("at", (time, node)), here), stop=(here("END"),))
    t, i = P.variables("t i")
    copy = P.Copy(schema.at(t + 1, i) << here(i), schema.at(t, i), schema.at(t, i))
    return P.compile(P.Program(schema, [copy], "own"))


def _certificates():
    flat = X.copy()
    flat[..., 1] = flat[..., 0]
    bits = 2 * RNG.integers(0, 2, (30, 3, 2)) - 1
    return [
        pa.certify(X),
        pa.certify(flat, method="exact"),
        pa.certify(bits, domain="boolean"),
        pa.certify(X[:3]),
    ]


def _machines():
    machines = pa.programs.machines
    named = machines.NamedMachine.plain
    parity = machines.NamedMachine(
        machines.parity(), ("even", "odd"), ("0", "1"), "parity", decides=True, input=(1, 0)
    )
    return [parity, named(machines.busy_beaver(3)), named(machines.divisibility(3, 2))]


def _saved(thing, path):
    pa.save(thing, path)
    return path.read_bytes()


def _machine(named, path):
    save_machine(named, path)
    return path.read_bytes()


def _arrays(place):
    few = RNG.standard_normal((6, 4, 2))
    np.save(place / "X.npy", few)
    np.save(place / "F.npy", np.asfortranarray(few))
    np.savez(place / "data.npz", X=few, Y=few[:, 0], weights=np.ones(6))
    np.savez_compressed(place / "padded.npz", X=few, Y=few, lengths=np.array([4, 4, 3, 2, 1, 4]))
    np.savez(place / "packed.npz", X=few[0], offsets=np.array([0, 1, 4]))
    return {
        "npy": [(place / name).read_bytes() for name in ("X.npy", "F.npy")],
        "npz": [(place / name).read_bytes() for name in ("data.npz", "padded.npz", "packed.npz")],
    }


def _cells(folder):
    nothing: Any = None
    experiment = Experiment(
        "squares", "Squares", "They grow.", "[nobody]", nothing, nothing, nothing, nothing, nothing
    )
    return FinishedCells(experiment, folder)


def _cell(place):
    cells = _cells(place / "cells")
    rows = [{"square": 9, "note": None, "error": 0.5, "exact": True, "words": "nine"}]
    cells.keep(SETTINGS, FinishedCell(rows, 1.5, {"date": "2026-01-01", "numpy": "2.0"}))
    return cells._path(SETTINGS).read_bytes()


def _table():
    gate = {"claim": "It holds.", "passed": True, "seen": "9"}
    table = {
        "name": "squares", "title": "Squares", "reference": "[nobody]", "claim": "They grow.",
        "findings": ["The last is 9."], "gates": [gate], "passed": True, "profile": "smoke",
        "seconds": 1.5, "surroundings": {"date": "2026-01-01"}, "rows": [{"number": 3}],
    }  # fmt: skip
    TABLE(with_digest(table), "the table")
    return table


def _as_yaml(plain):
    def forge(rng, _):
        made = mutations.changed(rng, mutations.pick(rng, plain))
        # Flow style is JSON with other words for some values.
        return mutations.as_json(made).replace("NaN", ".nan").encode()

    return forge


# The run -----------------------------------------------------------------------------------------


def attempt(target: Target, content: bytes, path: Path) -> tuple[str, str, float]:
    """Load and use one file: "read", "refused" or "unexpected", the trace, the seconds."""
    path.write_bytes(content)
    start = time.perf_counter()
    try:
        target.use(path)
    except PolyattnError:
        outcome, trace = "refused", ""
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding
        outcome, trace = "unexpected", traceback.format_exc()
    else:
        outcome, trace = "read", ""
    return outcome, trace, time.perf_counter() - start


def run(names: list[str], count: int, seed: int) -> dict[str, Any]:
    """``count`` mutations, dealt to the loaders in turn."""
    known = targets()
    base = _peak()
    counts = dict.fromkeys(("read", "refused", "unexpected"), 0)
    found, slowest = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            target = known[names[number % len(names)]]
            content = target.mutant(np.random.default_rng([seed, number]))
            path = Path(folder) / f"file{target.suffix}"
            outcome, trace, seconds = attempt(target, content, path)
            counts[outcome] += 1
            slowest = max(slowest, seconds)
            if trace:
                found.append({"target": target.name, "number": number, "trace": trace})
            if seconds > MOST_SECONDS:
                found.append({"target": target.name, "number": number, "seconds": seconds})
    return {"count": count, "slowest": slowest, "bytes": _peak() - base, "found": found} | counts


def limit_memory(more: int = 2 * MOST_BYTES) -> None:
    """Let this process take only so much more memory: a bomb then fails, and harms nobody."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", nargs="*")
    given = parser.parse_args()
    names = given.targets or list(targets())
    limit_memory()
    # What the verbs print goes nowhere; the findings are the only output.
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        found = run(names, given.count, given.seed)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
