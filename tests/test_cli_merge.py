"""``polyattn merge``: the sum of statistics is that of their data, and nothing counts twice."""

import shutil

import numpy as np
import pytest

import polyattn as pa
from command_endings import parsed, refused


@pytest.fixture
def shards(run):
    """Statistics of two halves of a data set, of files that have names, and the whole."""
    task = pa.data.planted(60, 4, 2, mode="last", random_state=0)
    for i, part in enumerate((slice(0, 25), slice(25, 60))):
        np.savez(f"data-{i}.npz", X=task.X[part], Y=task.Y[part])
        pa.Moments(2, 2).update(pa.scan(f"data-{i}.npz")).save(f"sums-{i}.safetensors")
        factor = pa.TriangularFactor(2, 2).update(task.X[part], task.Y[part])
        factor.save(f"factor-{i}.safetensors")
    return run, task


def test_the_sum_is_that_of_all_data(shards):
    run, task = shards
    result = run("merge", "sums-1.safetensors", "sums-0.safetensors", "-o", "all.safetensors")
    assert result.exit_code == 0
    for words in ("60 sequences", "data-0.npz", "data-1.npz", "0..25", "0..35", "all.safetensors"):
        assert words in result.stdout
    total = pa.load("all.safetensors")
    whole = pa.fit(task.X, task.Y)
    assert total.n_sequences == 60
    assert np.allclose(pa.fit(statistics=total).coef, whole.coef, rtol=1e-9)


def test_patterns_and_json(shards):
    run, _ = shards
    found = parsed(run("merge", "factor-*.safetensors", "-o", "f.safetensors", "--json"))
    assert found["n_sequences"] == 60
    assert len(found["files"]) == 2
    assert found["output"] == "f.safetensors"
    assert found["contents"] == {"unnamed": True, "sources": []}
    assert isinstance(pa.load("f.safetensors"), pa.TriangularFactor)
    named = parsed(run("merge", "sums-*.safetensors", "-o", "g.safetensors", "--json"))
    assert [each["ranges"] for each in named["contents"]["sources"]] == [[[0, 25]], [[0, 35]]]


def test_data_without_a_name_are_pointed_out(shards):
    run, _ = shards
    text = run("merge", "factor-*.safetensors", "-o", "f.safetensors").stdout
    assert "These data have no name: whether they are counted twice is not known" in text
    text = run("merge", "sums-*.safetensors", "-o", "g.safetensors").stdout
    assert "is not known" not in text


def test_nothing_counts_twice(shards):
    run, _ = shards
    out = ("-o", "out.safetensors")
    assert run("merge", "sums-*.safetensors", "-o", "all.safetensors").exit_code == 0
    again = run("merge", "sums-0.safetensors", "all.safetensors", *out)
    refused(again, "cannot be added", "data-0.npz", "is already counted")
    refused(run("merge", "sums-0.safetensors", "./sums-0.safetensors", *out), "given twice")
    shutil.copy("factor-0.safetensors", "copy.safetensors")
    copied = run("merge", "factor-0.safetensors", "copy.safetensors", *out)
    refused(copied, "the same statistics as", "bit for bit", "Leave one of them out")


def test_what_cannot_be_added_is_refused_in_words(shards):
    run, task = shards
    out = ("-o", "out.safetensors")
    both = run("merge", "sums-0.safetensors", "factor-0.safetensors", *out)
    refused(both, "statistics of one kind can be added")
    pa.Moments(2, 2, "last", bias=True).update(task.X, task.Y).save("other.safetensors")
    refused(run("merge", "sums-0.safetensors", "other.safetensors", *out), "bias")
    refused(run("merge", "data-0.npz", *out), "no file of statistics", "Moments.save")
    refused(run("merge", "data-0.npz", "sums-0.safetensors", *out), "data-0.npz")
    pa.save(pa.fit(task.X, task.Y), "fit.safetensors")
    refused(run("merge", "fit.safetensors", *out), "FitResult", "merge adds up")
    refused(run("merge", "no-*.safetensors", *out), "no file matches")
    over = run("merge", "sums-*.safetensors", "-o", "sums-0.safetensors")
    refused(over, "one of the files of DATA")
    refused(run("merge", "sums-0.safetensors"), "--output", code=2)
    refused(run("merge", "sums-0.safetensors", "-o", "out.pkl"), ".safetensors")
