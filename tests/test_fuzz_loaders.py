"""Whatever a file holds, it is read or refused by an error of polyattn, soon and in little memory.

Mutated and forged files for every loader; what is read is used, so that a wrong type that passes
is found as well.
"""

import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuzz_targets
from polyattn.cli.main import cli

HERE = Path(__file__).parent
NAMES = (
    "saved", "certificate", "machine.json", "machine.yaml", "npy", "npz", "cell",
    "checkpoint", "table",
)  # fmt: skip


@pytest.fixture(scope="module")
def targets():
    return fuzz_targets.targets()


def mutated(count, seed):
    """Load ``count`` mutated files in a process of its own, with a limit on its memory."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "fuzz_targets.py"), "--count", str(count),
         "--seed", str(seed)],
        capture_output=True, text=True, check=False, timeout=1800,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def assert_calm(found, count):
    assert not found["found"], found["found"][0]
    assert found["read"] + found["refused"] == found["count"] == count
    # Neither all nor none: the mutations are neither harmless nor always noticed at once.
    assert 0.01 * count < found["read"] < 0.5 * count
    assert found["slowest"] < fuzz_targets.MOST_SECONDS
    assert found["bytes"] < fuzz_targets.MOST_BYTES


def test_mutated_files_are_read_or_refused():
    assert_calm(mutated(600, seed=0), 600)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_very_many_mutated_files_are_read_or_refused(seed):
    assert_calm(mutated(10_000, seed), 10_000)


def test_every_loader_is_a_target_and_reads_its_good_files(targets, tmp_path):
    assert tuple(targets) == NAMES
    for name, target in targets.items():
        for content in target.corpus:
            path = tmp_path / f"good{target.suffix}"
            outcome, trace, _ = fuzz_targets.attempt(target, content, path)
            assert outcome == "read", (name, trace)


def test_an_exception_of_others_is_a_finding(targets, tmp_path):
    """The judge can say no."""

    def careless(path):
        return json.loads(path.read_bytes())["seal"]["missing"]

    target = replace(targets["certificate"], use=careless)
    for content in (b"{", b"{}", target.corpus[0]):
        outcome, trace, _ = fuzz_targets.attempt(target, content, tmp_path / "file.json")
        assert (outcome, "Error" in trace) == ("unexpected", True)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_content_is_read_or_refused(name, targets, tmp_path_factory, data):
    target = targets[name]
    good = data.draw(st.sampled_from(target.corpus))
    at = data.draw(st.integers(0, len(good)))
    contents = st.one_of(
        st.binary(max_size=60),
        ANY_JSON.map(lambda value: json.dumps(value).encode()),
        st.binary(max_size=8).map(lambda more: good[:at] + more + good[at:]),
        st.binary(max_size=8).map(lambda more: good[:at] + more + good[at + len(more) :]),
    )
    path = tmp_path_factory.mktemp("fuzz") / f"file{target.suffix}"
    outcome, trace, _ = fuzz_targets.attempt(target, data.draw(contents), path)
    assert outcome != "unexpected", trace


VERBS = {
    "saved": (["show"], ["show", "--json"], ["fit"], ["certify"]),
    "certificate": (["show"], ["certify", "X.npy", "--check"]),
    "machine.json": (["program", "show"], ["program", "run", "--max-steps", "9"]),
    "machine.yaml": (["program", "show"], ["program", "compile", "fixed-dfa", "--machine"]),
    "npy": (["fit"], ["certify"]),
    "npz": (["fit"], ["certify"], ["learn-softmax", "--max-seconds", "0.1"]),
}


@pytest.mark.parametrize("name", VERBS)
def test_no_verb_ends_in_a_traceback(name, targets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", fuzz_targets.X)
    path = Path(f"file{targets[name].suffix}")
    for number in range(40):
        path.write_bytes(targets[name].mutant(np.random.default_rng([1, number])))
        verb = VERBS[name][number % len(VERBS[name])]
        with warnings.catch_warnings(action="ignore"):
            done = CliRunner().invoke(cli, [*verb, str(path)])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
        assert "Traceback" not in done.stderr
