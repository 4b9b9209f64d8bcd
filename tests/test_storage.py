"""Files: everything that can be saved comes back exactly, and nothing in a file is executed."""

import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest

import polyattn as pa
from polyattn import storage
from polyattn.files.records import Record, read_record
from polyattn.sequences import MODES
from storage_cases import IDS, OBJECTS, X, Y, random_layer

# Round trips --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OBJECTS)
def test_round_trips_are_exact(name, tmp_path):
    obj = OBJECTS[name]()
    path = tmp_path / "object.safetensors"
    assert pa.save(obj, path) is None
    loaded = pa.load(path)
    assert type(loaded) is type(obj)
    assert_identical(storage.record_of(loaded), storage.record_of(obj))
    pa.save(loaded, tmp_path / "again")
    assert_identical(read_record(tmp_path / "again"), read_record(path))


def test_a_loaded_program_runs(tmp_path):
    program = OBJECTS["Turing machine"]()
    pa.save(program, tmp_path / "program")
    loaded = pa.load(tmp_path / "program")
    beaver = pa.programs.machines.busy_beaver(2)
    assert loaded.run(beaver, []) == program.run(beaver, []) == beaver.run([0] * 4)
    assert loaded.layer == program.layer


@pytest.mark.parametrize("mode", MODES)
def test_a_loaded_layer_is_the_layer(mode, tmp_path):
    layer = random_layer(2, 3, 2, mode)
    pa.save(layer, tmp_path / "layer")
    loaded = pa.load(tmp_path / "layer")
    assert loaded == layer
    assert hash(loaded) == hash(layer)
    assert repr(loaded) == repr(layer)
    inputs = np.random.default_rng(1).standard_normal((3, 4, 3))
    np.testing.assert_array_equal(loaded(inputs), layer(inputs))


@pytest.mark.parametrize("name", [name for name in OBJECTS if name.startswith("result")])
def test_a_loaded_result_is_the_result(name, tmp_path):
    result = OBJECTS[name]()
    pa.save(result, tmp_path / "result")
    loaded = pa.load(tmp_path / "result")
    assert loaded.outcome == result.outcome
    assert repr(loaded) == repr(result)
    assert loaded.layer == result.layer
    assert (loaded.gap, loaded.rank, loaded.condition) == (
        result.gap, result.rank, result.condition,
    )  # fmt: skip
    inputs = IDS if isinstance(result, pa.OneHotFit) else X
    np.testing.assert_array_equal(loaded.predict(inputs), result.predict(inputs))
    if result.ridge_path is not None:
        assert loaded.ridge_path.best == result.ridge_path.best
        assert loaded.ridge_path.kind == result.ridge_path.kind
    assert (loaded.statistics is None) == (result.statistics is None)
    if result.statistics is not None and result.loss == "squared":
        again = pa.fit(statistics=loaded.statistics, ridge=loaded.ridge)
        expected = pa.fit(statistics=result.statistics, ridge=result.ridge)
        np.testing.assert_array_equal(again.coef, expected.coef)


def test_a_loaded_result_is_as_frozen_as_a_fitted_one(tmp_path):
    result = pa.fit(X, Y)
    pa.save(result, tmp_path / "result")
    for each in (result, pa.load(tmp_path / "result")):
        with pytest.raises(FrozenInstanceError):
            each.risk = 0.0
        with pytest.raises(ValueError, match="read-only"):
            each.coef[0, 0, 0] = 1.0
        with pytest.raises(ValueError, match="read-only"):
            each.layer.attn[0, 0, 0] = 1.0


# No code in files ---------------------------------------------------------------------------

# The end of a name, ".pickle", is no use of it.
EXECUTING = re.compile(
    r'(?<!"\.)\bpickle\b(?! anywhere)|allow_pickle\s*=\s*True|joblib\.(load|dump)|\bshelve\b'
    r"|\bmarshal\b|(?<![\w.])(eval|exec)\(|weights_only\s*=\s*False|yaml\.load"
)

# What Dask sends to its workers; no file.
BETWEEN_PROCESSES = "distributed.protocol.pickle"


def test_nothing_in_the_source_executes_a_file():
    root = Path(pa.__file__).parent
    found = [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in root.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if EXECUTING.search(line.replace(BETWEEN_PROCESSES, ""))
        and not line.lstrip().startswith(("#", '"""'))
    ]
    assert not found, found
    assert EXECUTING.search("import pickle")
    assert EXECUTING.search("np.load(path, allow_pickle=True)")


def test_every_kind_is_covered_here():
    kinds = {
        storage.record_of(OBJECTS[name]()).kind
        for name in (
            "layer",
            "softmax layer",
            "learned softmax layer",
            "layer from queries",
            "moments",
            "factor",
            "result",
            "result of token ids",
            "program",
            "learned rules",
            "learned coefficients",
            "program certificate",
            "audit",
            "audit of heads",
            "linearised",
            "linearised layer",
            "learning curve",
            "forecast",
            "scaler",
            "pipeline of transformers",
        )
    }
    assert kinds == {*storage.KINDS, *storage.ESTIMATOR_KINDS}


# Helpers ------------------------------------------------------------------------------------


def assert_identical(found: Record, expected: Record):
    """Bit for bit, the sign of zero included."""
    assert (found.kind, found.metadata) == (expected.kind, expected.metadata)
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert np.ascontiguousarray(found.arrays[name]).tobytes() == (
            np.ascontiguousarray(array).tobytes()
        ), name
