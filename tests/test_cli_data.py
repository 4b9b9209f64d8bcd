"""DATA of verbs: however the same sequences are stored, the answers are the same."""

import csv
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import polyattn as pa
from oracle import parsed, printed, refused, wrong_uses

RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(2, 6, 30)
X = [RNG.standard_normal((n, 2)) + (i % 3) / 2 for i, n in enumerate(LENGTHS)]
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)])
WEIGHTS = np.arange(30) % 3 + 0.5
STATES = np.array(["calm", "busy", "mixed"])
NUMBERS = {"last": RNG.standard_normal((30, 1)), "causal": [x[:, :1] * x[:1, 1:] for x in X]}
LABELS = {
    "last": STATES[np.arange(30) % 3],
    "causal": [STATES[(x[:, 0] > 0) + (x[:, 1] > 1).astype(int)] for x in X],
}

COLUMNS = ("--sequence", "id", "--order", "time", "--tokens", "speed,load")
STORED = {
    "padded.npz": (), "packed.npz": (), "part-*.npz": (), "part-1.npz part-0.npz": (),
    "table.csv": COLUMNS, "table.parquet": COLUMNS, "half-*.csv": COLUMNS,
}  # fmt: skip


def padded(sequences):
    flat = np.concatenate(sequences)
    made = np.full((30, 6, *flat.shape[1:]), "" if flat.dtype.kind == "U" else np.nan, flat.dtype)
    made[np.arange(6) < LENGTHS[:, None]] = flat
    return made


def store(mode, Y, weights=None):
    """Everything of STORED: the rows of tables stand backwards in time, times begin at 5."""
    flat = Y if mode == "last" else np.concatenate(Y)
    more = {} if weights is None else {"weights": weights}
    Y_padded = Y if mode == "last" else padded(Y)
    np.savez("padded.npz", X=padded(X), Y=Y_padded, lengths=LENGTHS, **more)
    np.savez("packed.npz", X=np.concatenate(X), Y=flat, offsets=OFFSETS, **more)
    for i, part in enumerate((slice(0, 11), slice(11, 30))):
        of_part = {"X": padded(X), "Y": Y_padded, "lengths": LENGTHS} | more
        np.savez(f"part-{i}.npz", **{name: each[part] for name, each in of_part.items()})
    frame = pd.DataFrame({
        "id": np.repeat([f'run-{i:02d}, "b"' for i in range(30)], LENGTHS),
        "time": np.concatenate([np.arange(n) + 5 for n in LENGTHS]),
        "speed": np.concatenate(X)[:, 0], "load": np.concatenate(X)[:, 1],
        "y": (np.repeat(flat, LENGTHS, axis=0) if mode == "last" else flat).ravel(),
        "w": np.repeat(np.ones(30) if weights is None else weights, LENGTHS),
    })  # fmt: skip
    frame = frame.sort_values(["id", "time"], ascending=[True, False])
    frame.to_csv("table.csv", index=False)
    frame.to_parquet("table.parquet")
    early = frame["id"] < "run-14"
    frame[early].to_csv("half-0.csv", index=False)
    frame[~early].to_csv("half-1.csv", index=False)
    return frame


def of_rows(found):
    """Predictions of all positions, one after the other."""
    return np.concatenate(found) if isinstance(found, list) else found


@pytest.mark.parametrize("mode", ["last", "causal"])
@pytest.mark.parametrize("stored", STORED)
def test_stored_in_any_way_data_are_the_same(stored, mode, run):
    Y, columns, names = NUMBERS[mode], STORED[stored], stored.split()
    store(mode, Y, WEIGHTS)
    targets = (*columns, "--targets", "y", "--weight", "w") if columns else ()
    form = ("--mode", mode, "--query", 0, "--value", 1)
    fitted = run("fit", *names, *targets, *form, "--json", "-o", "m.safetensors")
    expected = pa.fit(X, Y, form=pa.Form(mode, query=[0], value=[1]), sample_weight=WEIGHTS)
    assert parsed(fitted)["risk"] == pytest.approx(expected.risk, rel=1e-9)
    np.testing.assert_allclose(pa.load("m.safetensors").coef, expected.coef, rtol=1e-6, atol=1e-9)
    audit = parsed(run("audit", "m.safetensors", *names, *targets, "--json"))
    assert audit["outcome"]["name"] == "optimal"
    told = parsed(run("predict", "m.safetensors", *names, *columns, "--json", "-o", "p.npz"))
    with np.load("p.npz") as written:
        flat = written["Y"] if mode == "last" else written["values"]
    np.testing.assert_allclose(flat, of_rows(expected.predict(X)), rtol=1e-5, atol=1e-8)
    counts = {"n_sequences": 30, "n_rows": len(flat), "ragged": mode != "last"}
    assert told.items() >= counts.items()
    store(mode, Y)  # certificates take no weights
    made = parsed(run("certify", *names, *columns, *form, "--json", "-o", "c.json"))
    # The order of the files is that of their names, whatever was given.
    assert made["digest"] == pa.certify(X, form=expected.form).digest
    assert run("certify", *names, *columns, "--certificate", "c.json").exit_code == 0


@pytest.mark.parametrize("mode", ["last", "causal"])
@pytest.mark.parametrize("stored", STORED)
def test_labels_stored_in_any_way_give_the_same_classifier(stored, mode, run):
    y, columns, names = LABELS[mode], STORED[stored], stored.split()
    frame = store(mode, y)
    targets = (*columns, "--targets", "y") if columns else ()
    loss = "logistic" if mode == "last" else "squared"
    options = ("--classify", "--loss", loss, "--ridge", 1, "--mode", mode, "-o", "m.safetensors")
    found = parsed(run("fit", *names, *targets, *options, "--json"))
    expected = pa.LinearAttentionClassifier(mode=mode, loss=loss, ridge=1.0).fit(X, y)
    assert found["classes"] == ["busy", "calm", "mixed"]
    assert found["accuracy"] == pytest.approx(expected.score(X, y))
    assert found["majority_share"] == pytest.approx(expected.majority_share_)
    assert np.allclose(pa.load("m.safetensors").coef_, expected.coef_, rtol=1e-5, atol=1e-8)
    more = ("--probabilities",) if mode == "last" else ()
    out, read = ("p.parquet", pd.read_parquet) if "parquet" in stored else ("p.csv", pd.read_csv)
    printed(run("predict", "m.safetensors", *names, *columns, *more, "-o", out), 30, out)
    table, labels = read(out), of_rows(expected.predict(X))
    assert table["label"].tolist() == labels.tolist()
    if mode == "last":
        chances = table[[f"probability_of_{each}" for each in found["classes"]]]
        np.testing.assert_allclose(chances, expected.predict_proba(X), rtol=1e-6)
        labels = np.repeat(labels, LENGTHS)
    else:
        # Squared error of the indicators of classes, beside that of the best layer.
        indicators = [(each[:, None] == np.unique(STATES)).astype(float) for each in y]
        audit = parsed(run("audit", "m.safetensors", *names, *targets, "--json"))
        assert audit["risk"] == pytest.approx(pa.audit(expected.result_, X, indicators).risk)
    if columns:
        # Predictions join the table that they are of, whose rows stand in another order.
        keys = ["id"] if mode == "last" else ["id", "time"]
        assert list(table)[: len(keys)] == keys
        joined = frame.merge(table, on=keys, validate="many_to_one").sort_values(["id", "time"])
        assert joined["label"].tolist() == labels.tolist()


def test_numbers_of_other_kinds_and_several_labels_at_once(run):
    X = np.random.default_rng(1).standard_normal((30, 2, 2)).astype(np.float32)
    np.save("X.npy", X)
    given = ("fit", "X.npy", "--targets", "y.npy", "-o", "m.safetensors", "--json", "--classify")
    for labels in (np.arange(30) % 3, np.arange(30) % 2 == 0, (X[:, -1] > 0).astype(int)):
        np.save("y.npy", labels)
        parsed(run(*given))
        assert run("predict", "m.safetensors", "X.npy", "-o", "p.npy").exit_code == 0
        expected = pa.LinearAttentionClassifier().fit(X, labels).predict(X)
        np.testing.assert_array_equal(np.load("p.npy"), expected)


@pytest.mark.parametrize("stored", ["padded", "offsets"])
def test_contexts_in_files(stored, run):
    form = pa.Form(mode="full")
    task = pa.data.planted(50, 6, 2, n_outputs=1, form=form, n_context_dims=2, random_state=0)
    lengths = np.where(np.arange(50) % 2, 6, 3)
    ragged = [one[:n] for one, n in zip(task.context, lengths, strict=True)]
    Y = np.stack(task.layer(list(task.X), ragged))
    arrays = {"context": task.context, "context_lengths": lengths}
    if stored == "offsets":
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        arrays = {"context": np.concatenate(ragged), "context_offsets": offsets}
    np.savez("data.npz", X=task.X, Y=Y, **arrays)
    fitted = parsed(run("fit", "data.npz", "--mode", "full", "--json", "-o", "m.safetensors"))
    assert fitted["n_context_dims"] == 2
    assert run("predict", "m.safetensors", "data.npz", "-o", "p.npy").exit_code == 0
    np.testing.assert_allclose(np.load("p.npy"), Y, atol=1e-8)
    assert parsed(run("audit", "m.safetensors", "data.npz", "--json"))["outcome"]["ok"]


def test_gaps_are_filled_and_tokens_scaled_by_steps_that_are_saved(run):
    frame = store("last", LABELS["last"], WEIGHTS)
    frame.iloc[[3, 50, 70], 2] = np.nan
    frame.to_csv("gaps.csv", index=False)
    given = ("fit", "gaps.csv", *COLUMNS, "--targets", "y", "--weight", "w", "--classify")
    refused(run(*given), "speed", "--impute")
    options = ("--impute", "linear", "--scale", "-o", "m.safetensors", "--json")
    found = parsed(run(*given, *options))
    ordered = frame.sort_values(["id", "time"])
    gaps = np.split(ordered[["speed", "load"]].to_numpy(), OFFSETS[1:-1])
    filled = pa.SequenceImputer("linear").fit_transform(gaps)
    scaled = pa.SequenceScaler().fit(filled, sample_weight=WEIGHTS).transform(filled)
    beside = {"y": LABELS["last"], "sample_weight": WEIGHTS}
    expected, model = pa.LinearAttentionClassifier().fit(scaled, **beside), pa.load("m.safetensors")
    np.testing.assert_allclose(model[-1].coef_, expected.coef_, rtol=1e-6, atol=1e-9)
    assert found["accuracy"] == pytest.approx(expected.score(scaled, **beside))
    assert run("predict", "m.safetensors", "gaps.csv", *COLUMNS, "-o", "p.csv").exit_code == 0
    assert pd.read_csv("p.csv")["label"].tolist() == model.predict(gaps).tolist()


def test_sums_that_were_saved_apart_are_those_of_all_data(run):
    Y = NUMBERS["last"]
    for name, kind in (("m", pa.Moments), ("t", pa.TriangularFactor)):
        for i, part in enumerate((slice(0, 11), slice(11, 30))):
            kind(2, 1).update(X[part], Y[part], chunk=f"part {i}").save(f"{name}-{i}.safetensors")
        told = parsed(run("merge", f"{name}-*.safetensors", "-o", f"{name}.safetensors", "--json"))
        assert (told["n_sequences"], len(told["files"])) == (30, 2)
        assert [each["source"] for each in told["contents"]["sources"]] == ["part 0", "part 1"]
        for given in ([f"{name}.safetensors"], [f"{name}-1.safetensors", f"{name}-0.safetensors"]):
            parsed(run("fit", *given, "-o", "fit.safetensors", "--json"))
            coef = pa.load("fit.safetensors").coef
            np.testing.assert_allclose(coef, pa.fit(X, Y).coef, rtol=1e-6, atol=1e-9)
            assert parsed(run("certify", *given, "--json"))["n_rows"] == 30
    printed(run("merge", "m-*.safetensors", "-o", "m.safetensors"), 30, "part 0", "part 1")


APART = (
    "m.safetensors m-0.safetensors - part 0; m-0.safetensors ./m-0.safetensors - twice; "
    "unnamed.safetensors copy.safetensors - copy.safetensors; m.safetensors d.npz - d.npz; "
    "m-0.safetensors t-1.safetensors - TriangularFactor; m.safetensors bias.safetensors - bias; "
    "no-*.safetensors - no-*.safetensors"
)


def test_sums_that_do_not_belong_together_are_refused(run):
    for name, kind in (("m-0", pa.Moments), ("t-1", pa.TriangularFactor)):
        kind(2, 1).update(X, NUMBERS["last"], chunk="part 0").save(f"{name}.safetensors")
    pa.Moments(2, 1, bias=True).update(X, NUMBERS["last"]).save("bias.safetensors")
    pa.Moments(2, 1).update(X, NUMBERS["last"]).save("unnamed.safetensors")
    shutil.copy("unnamed.safetensors", "copy.safetensors")
    shutil.copy("m-0.safetensors", "m.safetensors")
    np.savez("d.npz", X=X[0][None])
    uses = {"merge -o out.safetensors": f"{APART}; d.npz - d.npz", "fit": APART}
    for command, word in wrong_uses(uses):
        refused(run(*command), word)
    said = printed(run("merge", "copy.safetensors", "-o", "out.safetensors"), "no name")
    assert "Some of" not in said


def test_a_checkpoint_is_gone_on_from_and_kept_for_its_data(run):
    store("last", NUMBERS["last"])
    command = ("fit", "part-*.npz", "--checkpoint", "kept", "--json")
    first, before = parsed(run(*command)), Path("kept").read_bytes()
    again = parsed(run(*command))
    assert first["risk"] == again["risk"] == pytest.approx(pa.fit(X, NUMBERS["last"]).risk)
    refused(run("fit", "part-0.npz", *command[2:]), "part-1.npz")
    for other in ((*command, "--bias"), ("certify", *command[1:])):
        refused(run(*other), "kept")
    np.savez("part-0.npz", X=np.ones((30, 4, 2)), Y=np.ones((30, 1)))
    refused(run(*command), "part-0.npz")
    assert Path("kept").read_bytes() == before


def test_verbs_in_memory_read_all_files_or_say_that_they_do_not_fit(run, monkeypatch):
    store("last", NUMBERS["last"])
    pa.save(pa.fit(X, NUMBERS["last"]), "m.safetensors")
    options = "--train-sizes 12,20 --n-repeats 2 --ridge 0.1 --seed 1 --mean"
    curve = ("learning-curve", *options.split(), "--json")
    given = {"n_repeats": 2, "ridge": 0.1, "random_state": 1, "form": pa.Form(mean=True)}
    expected = pa.learning_curve(X, NUMBERS["last"], [12, 20], **given)
    one = parsed(run(*curve, "packed.npz", "-o", "c.safetensors"))
    assert one["curve"] == pa.load("c.safetensors").table() == expected.table()
    for files in (["part-*.npz"], ["table.csv", *COLUMNS, "--targets", "y"]):
        assert parsed(run(*curve, *files))["curve"] == one["curve"]
    tested = ("--test-data", "part-0.npz", "--test-data", "part-1.npz")
    assert parsed(run(*curve, "packed.npz", *tested))["n_test"] == 30
    # Parts and the whole are there at once.
    memory = int(1.5 * pa.scan("part-*.npz").n_bytes)
    monkeypatch.setattr("os.sysconf", lambda name: memory if "PAGES" in name else 1)
    for given in (curve[:1], ("learn-softmax",), ("report", "m.safetensors")):
        refused(run(*given, "part-*.npz"), given[0], "memory")


def test_a_table_without_columns_is_answered_by_a_command_that_runs(run):
    store("last", LABELS["last"])
    for verb in ("fit", "certify"):
        ended = run(verb, "table.csv")
        refused(ended, "table.csv", "speed", "time", "y", f"polyattn {verb} table.csv")
        example = ended.stderr.strip().partition("For example: polyattn ")[2]
        assert ("--targets" in example) == (verb == "fit")
        assert run(*next(csv.reader([example], delimiter=" "))).exit_code == 0


C = " ".join(COLUMNS)
LABELLED = f"{C} --targets y --classify"
OWN_NAMES = "--sequence a; --order a; --tokens a; --weight a"
MISUSES = {
    f"fit table.csv {C}": "- --targets; --targets y - --classify; --targets gone - gone; "
    "--targets y,load --classify - 2 targets",
    f"fit table.csv {LABELLED}": "--workers 2; --explain",
    "fit table.csv": "--targets y - --tokens; --tokens speed --targets load - --sequence",
    f"fit half.parquet {LABELLED}": "- 0.5",
    f"fit none.parquet {LABELLED}": "- 'y'",
    f"fit empty.csv {LABELLED}": "- run-07",
    f"audit c.safetensors new.csv {C} --targets y": "- ['new']",
    f"predict c.safetensors table.csv {C} -o o.npy": "--probabilities",
    f"predict m.safetensors scattered.csv {C}": "-o o.npy - twice; -o o.parquet - twice",
    "predict m.safetensors -o o.npy plain.npz": "plain.npz - twice; link.npz - twice; "
    "gone.npz - gone.npz; table.csv - table.csv; wide.npz - wide.npz",
    "fit plain.npz": f"m.safetensors - m.safetensors; {OWN_NAMES}",
    "fit part-*.npz": f"--targets y; {OWN_NAMES}",
}


def test_misuses_of_tables_name_the_option_or_the_place(run):
    frame = store("last", LABELS["last"])
    pa.save(pa.fit(X, NUMBERS["last"]), "m.safetensors")
    classifier = run("fit", "table.csv", *LABELLED.split(), "-o", "c.safetensors")
    assert classifier.exit_code == 0
    frame.assign(y=frame["y"].replace("calm", "new")).to_csv("new.csv", index=False)
    frame.assign(y=frame["y"].mask(frame["id"].str.startswith("run-07"), "")).to_csv(
        "empty.csv", index=False
    )
    for name, value in (("half", 0.5), ("none", None)):
        frame.assign(y=value).to_parquet(f"{name}.parquet")
    frame.sort_values("time").to_csv("scattered.csv", index=False)
    np.savez("wide.npz", X=np.ones((2, 3, 5)), Y=np.ones(2))
    np.savez("plain.npz", X=np.ones((2, 3, 2)), Y=np.ones(2))
    os.symlink("plain.npz", "link.npz")
    for command, word in wrong_uses(MISUSES):
        refused(run(*command), word)
    assert not list(Path().glob("o.*"))


def test_a_text_among_numbers_is_named_by_file_line_and_column(run):
    rows = [f"{i // 4},{i % 4},{i % 7}.5" for i in range(30_000)]
    rows[4998] = rows[4998].rpartition(",")[0] + ',"3,5"'
    Path("bad.csv").write_text("id,t,load\n" + "\n".join(rows) + "\n", encoding="utf-8")
    given = ("certify", "bad.csv", "--sequence", "id", "--order", "t", "--tokens", "load")
    refused(run(*given), "bad.csv", "line 5000:", "load", "3,5")


def test_a_missing_extra_is_named(run, monkeypatch):
    store("last", NUMBERS["last"])
    monkeypatch.setitem(sys.modules, "distributed", None)
    refused(run("fit", "part-*.npz", "--workers", "2"), "polyattn[dask]")


@pytest.mark.slow
def test_workers_give_the_answers_of_one_process(run):
    """Those of a scheduler and those that end with the verb."""
    distributed = pytest.importorskip("distributed")
    store("last", NUMBERS["last"])

    def answers(*more):
        fits = [("fit", "part-*.npz"), ("fit", "part-*.npz", "--checkpoint", f"kept{len(more)}")]
        for command in (*fits, ("certify", "part-*.npz")):
            found = parsed(run(*command, *more, "--json"))
            yield {name: each for name, each in found.items() if "seconds" not in name}

    alone = list(answers())
    assert next(answers("--workers", "1")) == alone[0]
    refused(run("fit", "part-*.npz", "--dask", "tcp://127.0.0.1:9"), "tcp://127.0.0.1:9")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL"
    ) as cluster:
        assert list(answers("--dask", cluster.scheduler_address)) == alone
