"""Verbs on several files, patterns and tables: the answers of the same sequences in one file."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest

import polyattn as pa
from command_endings import parsed, refused
from polyattn.cli import data as cli_data

COLUMNS = ("--sequence", "id", "--order", "t", "--tokens", "a,b,c")
TARGETS = ("--targets", "y0,y1,y2")


@pytest.fixture
def task():
    return pa.data.planted(90, 4, 3, n_heads=1, mode="last", random_state=0)


@pytest.fixture
def files(run, task):
    """The data in one file, in three shards, and as a table; a layer."""
    X, Y = task.X, task.Y
    np.savez("data.npz", X=X, Y=Y)
    for i in range(3):
        part = slice(30 * i, 30 * (i + 1))
        np.savez(f"shard-{i}.npz", X=X[part], Y=Y[part])
    write_table("table.csv", X, Y)
    pa.save(task.layer, "layer.safetensors")
    return run


def write_table(path, X, Y, names=None, header=("a", "b", "c")):
    """One row per token, backwards within a sequence: ``t`` has the order."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["id", "t", *header, *(f"y{j}" for j in range(Y.shape[-1]))])
        for i, sequence in enumerate(X):
            for t in reversed(range(len(sequence))):
                target = Y[i, t] if Y.ndim == 3 else Y[i]
                name = i if names is None else names[i]
                table.writerow(
                    [name, t, *map(repr, sequence[t].tolist()), *map(repr, target.tolist())]
                )


# predict


def test_predict_from_shards_and_tables_is_that_of_one_file(files, task):
    assert files("predict", "layer.safetensors", "data.npz", "-o", "one.npy").exit_code == 0
    found = parsed(files("predict", "layer.safetensors", "shard-*.npz", "-o", "s.npy", "--json"))
    assert found == {
        "predictions": "s.npy", "n_sequences": 90, "n_rows": 90, "n_outputs": 3, "ragged": False,
    }  # fmt: skip
    several = ("shard-2.npz", "shard-0.npz", "shard-1.npz")
    assert files("predict", "layer.safetensors", *several, "-o", "t.npy").exit_code == 0
    of_table = ("predict", "layer.safetensors", "table.csv", *COLUMNS, "-o", "u.npy")
    assert files(*of_table).exit_code == 0
    for name in ("one.npy", "s.npy", "t.npy", "u.npy"):
        assert np.allclose(np.load(name), task.layer(task.X), rtol=1e-12, atol=1e-12), name


def test_predictions_of_tokens_of_ragged_shards(run):
    layer = pa.data.random_layer(2, mode="causal")
    pa.save(layer, "layer.safetensors")
    X = np.random.default_rng(0).standard_normal((4, 5, 2))
    for i, lengths in enumerate(([5, 2], [5, 5])):
        np.savez(f"s{i}.npz", X=X[2 * i : 2 * i + 2], lengths=lengths)
    found = parsed(run("predict", "layer.safetensors", "s*.npz", "-o", "out.npz", "--json"))
    assert (found["ragged"], found["n_rows"], found["n_sequences"]) == (True, 17, 4)
    with np.load("out.npz") as written:
        assert written["offsets"].tolist() == [0, 5, 7, 12, 17]
        assert np.allclose(written["values"][5:7], layer(X[1, :2]))
    refused(
        run("predict", "layer.safetensors", "s*.npz", "-o", "o.npy"), ".npz", "differ in length"
    )
    assert not Path("o.npy").exists()
    np.savez("s0.npz", X=X[:2], lengths=[5, 5])
    parsed(run("predict", "layer.safetensors", "s*.npz", "-o", "o.npy", "--json"))
    assert np.allclose(np.load("o.npy"), layer(X))


def read_table(path):
    """The columns of a table of predictions."""
    pandas = pytest.importorskip("pandas")
    return pandas.read_parquet(path) if path.endswith(".parquet") else pandas.read_csv(path)


@pytest.mark.parametrize("output", ["out.parquet", "out.csv"])
def test_predictions_as_a_table_carry_the_names_of_sequences(run, task, output):
    names = [f"series {i}" for i in range(90)]
    write_table("table.csv", task.X, task.Y, names)
    pa.save(task.layer, "layer.safetensors")
    found = parsed(
        run("predict", "layer.safetensors", "table.csv", *COLUMNS, "-o", output, "--json")
    )
    assert (found["n_sequences"], found["n_rows"], found["n_outputs"]) == (90, 90, 3)
    table = read_table(output)
    assert list(table) == ["id", "prediction_0", "prediction_1", "prediction_2"]
    assert table["id"].tolist() == names
    values = table.drop(columns="id").to_numpy()
    assert np.allclose(values, task.layer(task.X), rtol=1e-12, atol=1e-12)


def test_predictions_of_tokens_as_a_table_are_numbered(run):
    layer = pa.data.random_layer(2, mode="causal")
    pa.save(layer, "layer.safetensors")
    X = np.random.default_rng(0).standard_normal((4, 3, 2))
    np.savez("a.npz", X=X[:2], lengths=[3, 1])
    np.savez("b.npz", X=X[2:], lengths=[2, 3])
    found = parsed(run("predict", "layer.safetensors", "*.npz", "-o", "out.csv", "--json"))
    assert (found["n_sequences"], found["n_rows"], found["ragged"]) == (4, 9, True)
    table = read_table("out.csv")
    assert table["sequence"].tolist() == [0, 0, 0, 1, 2, 2, 3, 3, 3]
    assert table["token"].tolist() == [0, 1, 2, 0, 0, 1, 0, 1, 2]
    assert np.allclose(table[["prediction_0", "prediction_1"]][4:6], layer(X[2, :2]))
    refused(run("predict", "layer.safetensors", "*.npz", "-o", "out.xlsx"), ".npy, .npz, .parquet")


# fit, certify, audit


def test_fit_from_shards_and_tables_is_that_of_one_file(files, task):
    expected = pa.fit(task.X, task.Y).coef
    for given in (["shard-*.npz"], ["shard-1.npz", "shard-0.npz", "shard-2.npz"]):
        found = parsed(files("fit", *given, "-o", "m.safetensors", "--json"))
        assert found["rank"] == 18
        assert np.allclose(pa.load("m.safetensors").coef, expected)
    parsed(files("fit", "table.csv", *COLUMNS, *TARGETS, "-o", "m.safetensors", "--json"))
    assert np.allclose(pa.load("m.safetensors").coef, expected)
    explained = parsed(files("fit", "shard-*.npz", "--explain", "--json"))
    assert (explained["n_rows"], explained["n_outputs"]) == (90, 3)
    loo = parsed(files("fit", "shard-*.npz", "--ridge", "loo", "--solver", "direct", "--json"))
    assert loo["solver"] == "direct"


def test_fit_with_a_column_of_weights(run, task):
    weights = np.arange(90) % 3
    with open("table.csv", "w", encoding="utf-8") as file:
        file.write("id,w,a,b,c,y0\n")
        for i, sequence in enumerate(task.X):
            for token in sequence.tolist():
                file.write(f"s{i},{weights[i]},{token[0]!r},{token[1]!r},{token[2]!r},")
                file.write(f"{float(task.Y[i, 0])!r}\n")
    columns = ("--sequence", "id", "--tokens", "a,b,c", "--targets", "y0", "--weight", "w")
    parsed(run("fit", "table.csv", *columns, "--ridge", "2", "-o", "m.safetensors", "--json"))
    expected = pa.fit(task.X, task.Y[:, :1], ridge=2.0, sample_weight=weights)
    assert np.allclose(pa.load("m.safetensors").coef, expected.coef)


def test_certificates_of_shards_hold_for_the_whole(files):
    made = parsed(files("certify", "shard-*.npz", "-o", "c.json", "--json"))
    assert made["verdict"] == "identifiable"
    assert made["digest"] == parsed(files("certify", "data.npz", "--json"))["digest"]
    for given in (["data.npz"], ["shard-*.npz"], ["table.csv", *COLUMNS]):
        assert parsed(files("certify", *given, "--certificate", "c.json", "--json"))["verified"]
    other = parsed(files("certify", "shard-0.npz", "--certificate", "c.json", "--json"), code=1)
    assert "n_sequences is 30, not 90." in other["objections"]


def test_exit_codes_of_certificates_of_shards(run, task):
    np.savez("a.npz", X=task.X[:5])
    np.savez("b.npz", X=task.X[5:10])
    found = parsed(run("certify", "a.npz", "b.npz", "--witness", "--json"), code=3)
    assert found["verdict"] == "not_identifiable"
    assert found["witness"]["difference"] > 0
    assert found["digest"] == pa.certify(task.X[:10]).digest


def test_audit_of_shards(files):
    one = parsed(files("audit", "layer.safetensors", "data.npz", "--json"))
    found = parsed(files("audit", "layer.safetensors", "shard-*.npz", "--json"))
    assert found["outcome"]["name"] == one["outcome"]["name"] == "optimal"
    of_table = ("audit", "layer.safetensors", "table.csv", *COLUMNS, *TARGETS, "--json")
    assert parsed(files(*of_table))["certificate"]["digest"] == one["certificate"]["digest"]


# Checkpoints


def test_a_checkpoint_is_gone_on_from_and_kept_for_its_data(files):
    command = ("fit", "shard-*.npz", "--checkpoint", "run.safetensors", "--json")
    first, before = parsed(files(*command)), Path("run.safetensors").read_bytes()
    again = parsed(files(*command))
    untimed = {name: value for name, value in first.items() if "seconds" not in name}
    assert {name: again[name] for name in untimed} == untimed
    assert again.keys() == first.keys()
    refused(files("fit", "shard-0.npz", *command[2:]), "run.safetensors", "other data", "shard-1")
    refused(files(*command, "--bias"), "run.safetensors", "another form")
    refused(files("certify", *command[1:]), "run.safetensors", "Name another file")
    assert Path("run.safetensors").read_bytes() == before
    np.savez("shard-0.npz", X=np.ones((30, 4, 3)), Y=np.ones((30, 3)))
    refused(files(*command), "shard-0.npz", "has changed since")
    one = ("certify", "data.npz", "--checkpoint", "other", "--json")
    assert parsed(files(*one))["verdict"] == "identifiable"
    assert pa.files.records.read_record("other", "checkpoint").metadata["n_done"] == 1


def test_a_checkpoint_that_cannot_be_used_is_said_before_the_work(files):
    Path("c.json").write_text("{}")
    refused(files("fit", "shard-*.npz", "--checkpoint", "c.json"), "c.json")
    refused(files("fit", "shard-*.npz", "--checkpoint", "gone/c"), "gone")
    refused(files("fit", "shard-*.npz", "--solver", "dual", "--checkpoint", "c"), "checkpoint")
    Path("c").write_text("something else")
    refused(files("fit", "shard-*.npz", "--checkpoint", "c"), "'c'")
    assert Path("c").read_text() == "something else"
    same = ("--checkpoint", "m.safetensors", "-o", "../" + Path.cwd().name + "/m.safetensors")
    refused(files("fit", "shard-*.npz", *same), "both name", "another file")
    check = ("certify", "data.npz", "--certificate", "c.json", "--checkpoint", "d")
    refused(files(*check), "leave --checkpoint out")


# What holds data in memory


def test_verbs_in_memory_read_all_files(files):
    options = ("--train-sizes", "20,40", "--n-repeats", "2", "--json")
    one = parsed(files("learning-curve", "data.npz", *options))
    assert parsed(files("learning-curve", "shard-*.npz", *options)) == one
    of_table = parsed(files("learning-curve", "table.csv", *COLUMNS, *TARGETS, *options))
    assert of_table == one
    tested = ("--test-data", "shard-1.npz", "--test-data", "shard-2.npz")
    assert (
        parsed(
            files("learning-curve", "shard-0.npz", *tested, "--train-sizes", "10,20", *options[2:])
        )["n_test"]
        == 60
    )
    page = parsed(files("report", "layer.safetensors", "shard-*.npz", "-o", "page.html", "--json"))
    assert "Predicted against true" in page["sections"]


def test_memory_that_does_not_suffice_is_said_before_reading(files, monkeypatch):
    monkeypatch.setattr(cli_data, "physical_memory", lambda: 10_000)
    for verb in ("learn-softmax", "learning-curve"):
        refused(files(verb, "shard-*.npz"), f"{verb} holds its data in memory", "10 KB")
    refused(files("report", "layer.safetensors", "shard-*.npz"), "holds its data in memory")
    monkeypatch.setattr(cli_data, "physical_memory", lambda: None)
    curve = files("learning-curve", "shard-*.npz", "--train-sizes", "20,40")
    assert curve.exit_code == 0


# Columns


def test_a_column_with_a_comma_in_its_name(run, task):
    pa.save(task.layer, "layer.safetensors")
    write_table("table.csv", task.X, task.Y, header=("a", "b,c", "d"))
    start = ("predict", "layer.safetensors", "table.csv", "--sequence", "id", "--order", "t")
    for tokens in (
        ["--tokens", 'a,"b,c",d'],
        ["--tokens", "a", "--tokens", "b,c", "--tokens", "d"],
    ):
        assert run(*start, *tokens, "-o", "out.npy").exit_code == 0
        assert np.allclose(np.load("out.npy"), task.layer(task.X), rtol=1e-12, atol=1e-12)
    refused(run(*start, "--tokens", "a,b,c,d", "-o", "o.npy"), "no column 'b'")


def test_options_of_tables_are_refused_elsewhere(files, task):
    np.save("X.npy", task.X)
    np.save("Y.npy", task.Y)
    for option in (["--sequence", "id"], ["--order", "t"], ["--tokens", "a"], ["--weight", "w"]):
        refused(files("fit", "data.npz", *option), f"leave {option[0]} out")
        refused(files("fit", "shard-*.npz", *option), f"leave {option[0]} out")
    refused(files("fit", "shard-0.npz", "shard-1.npz", "--targets", "Y.npy"), "--targets", ".npz")
    refused(files("fit", "X.npy", "--targets", "Y.npy", "--targets", "Y.npy"), "got several")
    refused(files("fit", "table.csv", *COLUMNS), "no targets", "--targets COLUMNS")
    refused(files("fit", "table.csv", *COLUMNS, "--targets", "Y.npy"), "no column 'Y.npy'")
    refused(files("fit", "table.csv", *TARGETS), "tokens")
    refused(files("report", "layer.safetensors", "--tokens", "a"), "no DATA", "leave --tokens out")


def test_files_that_do_not_go_together(files):
    predict = ("predict", "layer.safetensors")
    refused(files(*predict, "shard-0.npz", "shard-0.npz", "-o", "o.npy"), "given twice")
    os.symlink("shard-0.npz", "link.npz")
    refused(files(*predict, "shard-0.npz", "link.npz", "-o", "o.npy"), "given twice")
    refused(files(*predict, "nothing-*.npz", "-o", "o.npy"), "no file matches 'nothing-*.npz'")
    refused(files(*predict, "shard-0.npz", "gone.npz", "-o", "o.npy"), "no file 'gone.npz'")
    refused(files(*predict, "shard-0.npz", "table.csv", "-o", "o.npy"), "of one kind")
    np.savez("wide.npz", X=np.ones((2, 3, 5)), Y=np.ones((2, 3)))
    refused(files(*predict, "shard-0.npz", "wide.npz", "-o", "o.npy"), "wide.npz", "5")
    refused(files("fit", "shard-0.npz", "layer.safetensors"), "statistics", "data")


def test_a_file_whose_name_looks_like_a_pattern(run, task):
    np.savez("data[1].npz", X=task.X, Y=task.Y)
    pa.save(task.layer, "layer.safetensors")
    assert parsed(run("predict", "layer.safetensors", "data[1].npz", "-o", "o.npy", "--json"))
    assert np.load("o.npy").shape == task.Y.shape


def test_a_sequence_in_two_places_is_refused(run, task):
    """It would be taken for two sequences."""
    pa.save(task.layer, "layer.safetensors")
    names = [*range(89), 0]
    write_table("table.csv", task.X, task.Y, names)
    predict = ("predict", "layer.safetensors", "table.csv", *COLUMNS, "-o", "o.npy")
    refused(run(*predict), "the sequence '0' is there twice")
    refused(run(*predict[:-1], "o.parquet"), "the sequence '0' is there twice")
    assert not Path("o.parquet").exists()
    refused(
        run("learning-curve", "table.csv", *COLUMNS, *TARGETS), "the sequence '0' is there twice"
    )
    write_table("table.csv", task.X, task.Y)
    assert run(*predict).exit_code == 0


# Statistics


@pytest.mark.parametrize("kind", [pa.Moments, pa.TriangularFactor])
def test_saved_statistics_are_added_up(files, task, kind):
    for i in range(3):
        part = slice(30 * i, 30 * (i + 1))
        kind(3, 3).update(task.X[part], task.Y[part], chunk=f"part {i}").save(
            f"sum-{i}.safetensors"
        )
    whole = pa.fit(task.X, task.Y)
    found = parsed(files("fit", "sum-*.safetensors", "-o", "m.safetensors", "--json"))
    assert np.allclose(pa.load("m.safetensors").coef, whole.coef)
    assert found["rank"] == whole.rank
    made = parsed(files("certify", "sum-0.safetensors", "sum-1.safetensors", "--json"))
    assert made["verdict"] == "identifiable"
    few = parsed(files("certify", "sum-0.safetensors", "--json"))
    assert made["n_rows"] == 2 * few["n_rows"]


def test_statistics_that_overlap_or_differ_are_refused(files, task):
    one = pa.Moments(3, 3).update(task.X, task.Y, chunk="all")
    one.save("a.safetensors")
    one.save("b.safetensors")
    pa.TriangularFactor(3, 3).update(task.X, task.Y).save("c.safetensors")
    pa.Moments(3, 3, mode="full").save("d.safetensors")
    refused(files("fit", "a.safetensors", "b.safetensors"), "b.safetensors", "already counted")
    refused(files("certify", "a.safetensors", "c.safetensors"), "Moments", "TriangularFactor")
    refused(files("fit", "a.safetensors", "d.safetensors"), "d.safetensors", "mode")
    refused(files("fit", "a.safetensors", "layer.safetensors"), "fitted already")
    refused(files("fit", "a.safetensors", "--targets", "y"), "leave --targets out")
    refused(files("fit", "a.safetensors", "--tokens", "y"), "leave --tokens out")
    refused(files("fit", "a.safetensors", "--checkpoint", "c"), "leave --checkpoint out")
    refused(files("certify", "a.safetensors", "--workers", "2"), "leave --workers out")


# Progress


def test_progress_over_bytes_names_the_file(files, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    predict = ("predict", "layer.safetensors", "shard-*.npz", "-o", "out.npy", "--json")
    result = files(*predict)
    assert json.loads(result.stdout)["n_rows"] == 90
    assert "predicting: shard-" in result.stderr
    assert "KB of" in result.stderr
    monkeypatch.delenv("FORCE_COLOR")
    assert files(*predict).stderr == ""


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_no_verb_writes_over_its_data(files, link):
    pa.Moments(3, 3).update(pa.scan("data.npz")).save("moments.safetensors")
    for command in (
        ("predict", "layer.safetensors", "data.npz"),
        ("predict", "layer.safetensors", "shard-*.npz"),
        ("predict", "layer.safetensors", "table.csv", *COLUMNS),
        ("fit", "moments.safetensors"),
    ):
        given = command[2 if command[0] == "predict" else 1]
        name = Path(given.replace("*", "1"))
        before, output = name.read_bytes(), name
        if link is not None:
            output = Path(f"other{name.suffix}")
            output.unlink(missing_ok=True)
            link(name, output)
        refused(files(*command, "-o", output), "one of the files of DATA")
        assert name.read_bytes() == before
