"""Whatever a file holds, it is read or refused by an error of polyattn, soon and in little memory.

Mutated and forged files for every reader; what is read is used, so that a wrong type that passes
is found as well.  Run as a script it prints what happened as JSON.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import forged_files as forged
import polyattn as pa
from polyattn.cli.main import cli
from polyattn.errors import PolyattnError

machines = pa.programs.machines

# A load may take so long, and so much memory, whatever the file.
MOST_SECONDS, MOST_BYTES = 10.0, 1 << 30


def verb(*words):
    """Run a verb, which may refuse the file, but not end in a traceback; returns what it prints."""
    done = CliRunner().invoke(cli, [*map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code == 1:
        raise PolyattnError(done.stderr)
    return done.stdout


def use_saved(path):
    """Load anything that was saved, and do with it what its kind is for."""
    verb("show", path)
    thing = pa.load(path)
    repr((repr(thing), str(thing)))
    if hasattr(thing, "to_dict"):
        json.dumps(thing.to_dict(), allow_nan=False)
        _ = hasattr(thing, "get_params") or thing._repr_html_()
    pa.save(thing, path.with_name("again"))
    forged.answers(thing)
    if isinstance(thing, pa.Moments | pa.TriangularFactor):
        repr(thing + type(thing)(thing.n_dims, thing.n_outputs, form=thing.form))
        pa.fit(statistics=thing)
    elif isinstance(thing, pa.Certificate) and thing.n_dims < 10:
        pa.verify(thing, forged.X)
    elif isinstance(thing, pa.programs.Compiled | pa.programs.Learned) and thing.n_dims < 100:
        assert getattr(thing, "n_rows", 0) >= 1000 or repr(thing.layer)


def use_machine(path):
    verb("program", "show", path)
    named = machines.load_machine(path)
    if isinstance(named.machine, machines.DFA):
        named.machine.run([0] * 5)
    elif named.machine.n_letters:
        named.machine.run([0] * 8, max_steps=20)
    machines.save_machine(named, path.with_name("again.json"))


def use_data(path):
    printed = verb("fit" if path.suffix == ".npz" else "certify", path, "--json")
    json.loads(printed, parse_constant=pytest.fail)


def use_checkpoint(path):
    """Go on from a checkpoint of the source beside it."""
    source = pa.scan(str(path.with_name("data-*.npz")))
    pa.fit(statistics=pa.Moments(2, 2).update(source, checkpoint=path))


USES = {
    "saved": (".safetensors", forged.record, use_saved),
    "certificate": (".json", forged.document, use_saved),
    "machine.json": (".json", forged.machine, use_machine),
    "machine.yaml": (".yaml", forged.yaml_machine, use_machine),
    "npy": (".npy", forged.npy, use_data),
    "npz": (".npz", forged.npz, use_data),
    "checkpoint": (".safetensors", forged.record, use_checkpoint),
}


def good_files(folder):
    """For each reader the bytes of some good files."""
    few = forged.X[:6]
    found = {name: [] for name in USES}
    for name in forged.THINGS:
        kind = "certificate" if name.startswith("certificate") else "saved"
        found[kind].append(forged.good_file(forged.THINGS[name](), folder))
    named = machines.NamedMachine(
        machines.parity(), ("even", "odd"), ("0", "1"), "parity", decides=True, input=(1, 0)
    )
    plain = [machines.busy_beaver(3), machines.divisibility(3, 2)]
    for each in (named, *map(machines.NamedMachine.plain, plain)):
        machines.save_machine(each, folder / "machine.json")
        found["machine.json"].append((folder / "machine.json").read_bytes())
    found["machine.yaml"] = found["machine.json"]
    found["npy"] = [forged.array_file(array) for array in (few, np.asfortranarray(few))]
    # Tokens of one coordinate, whose heads are found at once.
    few = few[..., :1]
    for arrays, save in (
        ({"X": few, "Y": few[:, 0], "weights": np.ones(6)}, np.savez),
        ({"X": few, "Y": few[:, 0], "lengths": np.array([4, 4, 3, 2, 1, 4])}, np.savez_compressed),
        ({"X": few[0], "Y": few[:2, 0], "offsets": np.array([0, 1, 4])}, np.savez),
    ):
        save(folder / "data.npz", **arrays)
        found["npz"].append((folder / "data.npz").read_bytes())
    (folder / "data.npz").unlink()
    for part, rows in (("0", slice(20)), ("1", slice(20, 40))):
        np.savez(folder / f"data-{part}.npz", X=forged.X[rows], Y=forged.Y[rows])
    use_checkpoint(folder / "state")
    found["checkpoint"].append((folder / "state").read_bytes())
    return found


def attempt(name, content, folder):
    """Read and use one file: "read", "refused" or "unexpected", the trace, the seconds."""
    suffix, _, use = USES[name]
    path = folder / f"file{suffix}"
    path.write_bytes(content)
    start, trace = time.perf_counter(), ""
    try:
        use(path)
    except PolyattnError:
        outcome = "refused"
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding
        outcome, trace = "unexpected", traceback.format_exc()
    else:
        outcome = "read"
    return outcome, trace, time.perf_counter() - start


def fuzz(count, seed):
    """``count`` mutations, dealt to the readers in turn."""
    counts, found = dict.fromkeys(("read", "refused", "unexpected"), 0), []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        good, names = good_files(folder), tuple(USES)
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(count):
            # Most of them to what has most to check.
            name = "saved" if number % 2 else names[number // 2 % len(names)]
            rng = np.random.default_rng([seed, number])
            way = forged.any_bytes if rng.integers(3) == 0 else USES[name][1]
            content = way(rng, forged.pick(rng, good[name]))
            outcome, trace, seconds = attempt(name, content, folder)
            counts[outcome] += 1
            if trace or seconds > MOST_SECONDS:
                found.append([name, number, seconds, trace])
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)
    return {"count": count, "bytes": grown, "found": found} | counts


def main(count, seed):
    """Let this process take only so much more memory: a bomb then fails, and harms nobody."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + 2 * MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    sys.stdout.write(json.dumps(fuzz(int(count), int(seed))) + "\n")


def mutated(count, seed):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, str(count), str(seed)],
        capture_output=True, text=True, check=False, timeout=1800,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_mutated_files_are_read_or_refused(seed):
    # All seeds together read 100,000 files.
    found = mutated(12_500, seed)
    assert not found["found"], found["found"][0]
    # Neither all nor none: the mutations are neither harmless nor always noticed at once.
    assert 0.01 < found["read"] / found["count"] < 0.5
    assert found["read"] + found["refused"] == found["count"]
    assert found["bytes"] < MOST_BYTES


@pytest.mark.slow
def test_good_files_are_read_and_exceptions_of_others_are_findings(tmp_path, monkeypatch):
    good = good_files(tmp_path)
    for name, contents in good.items():
        for content in contents:
            outcome, trace, _ = attempt(name, content, tmp_path)
            assert outcome == "read", (name, trace)
    careless = (".json", None, lambda path: json.loads(path.read_bytes())["seal"]["missing"])
    monkeypatch.setitem(USES, "certificate", careless)
    for content in (b"{", b"{}", good["certificate"][0]):
        assert attempt("certificate", content, tmp_path)[0] == "unexpected"


if __name__ == "__main__":
    main(*sys.argv[1:])
