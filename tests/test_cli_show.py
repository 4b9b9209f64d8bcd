"""``polyattn show`` opens every kind of file that the library writes."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import polyattn as pa
import storage_cases
from command_endings import parsed, refused
from polyattn import storage
from polyattn.certify import Certificate
from polyattn.errors import InvalidInput

P = pa.programs
X, LABELS = storage_cases.X, np.where(storage_cases.Y[:, 0] > 0, "up", "down")


def pipeline():
    return make_pipeline(pa.SequenceScaler(), pa.LinearAttentionClassifier()).fit(X, LABELS)


# One or more of each kind; what is listed nowhere makes the test below fail.
CASES = {
    **{name: make for name, make in storage_cases.OBJECTS.items() if "result" not in name},
    "result": storage_cases.OBJECTS["result"],
    "result of token ids": storage_cases.OBJECTS["result of token ids"],
    "result by log-loss": storage_cases.OBJECTS["result by log-loss"],
    "certificate": lambda: pa.certify(X),
    "classifier": lambda: pa.LinearAttentionClassifier().fit(X, LABELS),
    "regressor": lambda: pa.LinearAttentionRegressor().fit(X, storage_cases.Y),
    "scaler": lambda: pa.SequenceScaler().fit(X),
    "pipeline": pipeline,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each case, and which kind it holds."""
    folder, kinds = tmp_path_factory.mktemp("files"), {}
    for name, make in CASES.items():
        thing = make()
        is_document = isinstance(thing, Certificate)
        path = folder / (f"{name}.json" if is_document else f"{name}.safetensors")
        pa.save(thing, path)
        kinds[name] = path, "certificate" if is_document else storage.record_of(thing).kind
    return kinds


def test_there_is_a_case_of_every_kind(files):
    wanted = {*storage.KINDS, *storage.ESTIMATOR_KINDS, "certificate"}
    assert wanted - {kind for _, kind in files.values()} == set()


@pytest.mark.parametrize("name", CASES)
def test_every_kind_is_shown(name, files, run):
    path, kind = files[name]
    text = run("show", path)
    assert text.exit_code == 0, text.output
    assert text.stderr == ""
    assert len(text.stdout) > 40
    assert "object at 0x" not in text.stdout
    found = parsed(run("show", path, "--json"))
    assert found
    in_full = run("show", path, "--weights")
    assert in_full.exit_code == 0
    assert len(in_full.stdout) >= len(text.stdout) // 2, kind


def test_a_kind_that_nobody_describes_fails():
    """Negative control: what has no description cannot be shown."""
    from polyattn.cli.show import saved_thing

    with pytest.raises(InvalidInput, match="nothing to show of a object"):
        saved_thing(object())


# programs


@pytest.fixture
def program(run):
    pa.save(P.compile(P.universal_dfa(2, 2, 3)), "p.safetensors")
    return run


def test_a_program_is_shown_with_its_coordinates_and_heads(program):
    text = program("show", "p.safetensors").stdout
    for words in (
        "coordinates of a token (schema.coordinates)", "pos(time)", "state(0), state(1)",
        "attn: query -> key", "state -> flag", "nonzero entries", "T -> state",
    ):  # fmt: skip
        assert words in text


def test_weights_are_those_of_the_layer(program):
    compiled = P.compile(P.universal_dfa(2, 2, 3))
    found = parsed(program("show", "p.safetensors", "--json"))
    assert len(found["coordinates"]) == compiled.n_dims
    matrices = {name: np.zeros_like(compiled.layer.attn) for name in ("attn", "value")}
    for entry in found["entries"]:
        matrices[entry["matrix"]][entry["head"], entry["row"], entry["column"]] = entry["weight"]
        assert found["coordinates"][entry["row"]] == entry["from"]
    assert np.array_equal(matrices["attn"], compiled.layer.attn)
    assert np.array_equal(matrices["value"], compiled.layer.value)
    text = program("show", "p.safetensors", "--weights").stdout
    rows = [line for line in text.splitlines() if re.search(r"│ (attn|value)", line)]
    assert len(rows) == len(found["entries"])


def test_coordinates_have_names_in_python():
    schema = P.associative_memory(2, 2).schema
    names = schema.coordinate_names
    assert len(names) == schema.n_dims
    for atom, at in schema.coordinates.items():
        assert names[at] == schema.show({atom: 1})
    entry = P.compile(P.associative_memory(2, 2)).entries[0]
    assert str(entry).startswith(f"attn[0, {entry.row}, {entry.column}] = 1: ")
    assert entry.start == names[entry.row]


# documents, machines, data


def test_machines_and_programs_in_words(run):
    P.machines.save_machine(P.machines.parity(), "parity.json")
    P.machines.save_machine(P.machines.busy_beaver(2), "bb2.yaml")
    assert "accepting" in run("show", "parity.json").stdout
    assert "B" in run("show", "bb2.yaml").stdout
    assert parsed(run("show", "bb2.yaml", "--json"))["start"]
    learned = run("program", "learn", "dfa", "--test", "0", "-o", "words.json")
    assert learned.exit_code == 0
    assert "terms:" in run("show", "words.json").stdout


def test_a_reproduction(run):
    [table, *_] = sorted(Path(__file__).parents[1].glob("docs/reproduction/*/table.json"))
    shutil.copy(table, "table.json")
    text = run("show", "table.json").stdout
    assert json.loads(table.read_text())["title"] in text
    assert "holds" in text


def test_checkpoints_predictions_and_data(run):
    np.savez("a.npz", X=X, Y=storage_cases.Y)
    assert run("fit", "a.npz", "--checkpoint", "c.safetensors").exit_code == 0
    text = run("show", "c.safetensors").stdout
    assert "goes on from it" in text
    assert "1 of 1 chunks" in text
    text = run("show", "a.npz").stdout
    assert "40 x 4 x 2" in text
    Path("t.csv").write_text("id,a,what\n1,2.5,x\n", encoding="utf-8")
    found = parsed(run("show", "t.csv", "--json"))
    assert found["columns"] == {"id": "whole numbers", "a": "numbers", "what": "text"}


def test_what_is_none_of_these_is_refused(run):
    Path("page.html").write_text("<!doctype html><p>", encoding="utf-8")
    refused(run("show", "page.html"), "a page", "browser")
    Path("other.json").write_text("{}", encoding="utf-8")
    refused(run("show", "other.json"), "other.json")
    Path("bad.json").write_text('{"a": ', encoding="utf-8")
    refused(run("show", "bad.json"), "no JSON document")
    Path("noise.safetensors").write_bytes(b"\x01" * 100)
    refused(run("show", "noise.safetensors"), "not a polyattn file")
    refused(run("show", "nothing.safetensors"), "there is no file")
