"""The interfaces of softmax learning: the command line and the scikit-learn estimator."""

import copy
import json

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

import polyattn as pa
from polyattn.cli.main import cli
from polyattn.errors import InvalidInput
from polyattn.model import match_heads

TASK = pa.data.planted_softmax(80, 3, 3, n_heads=2, random_state=0)
REGRESSOR = pa.SoftmaxAttentionRegressor


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a verb inside an empty folder that holds data.npz; returns click's result."""
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", X=TASK.X, Y=TASK.Y)
    return lambda *arguments: CliRunner().invoke(cli, [str(one) for one in arguments])


# The command line ------------------------------------------------------------------------------


def test_the_verb_recovers_saves_and_says_so(run):
    result = run("learn-softmax", "data.npz", "-o", "heads.safetensors")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Recovered: 2 heads.")
    for word in ("heads", "expected error", "phases", "polish", "saved to heads.safetensors"):
        assert word in result.output
    learned = pa.load("heads.safetensors")
    assert learned.recovered
    assert match_heads(learned.layer, TASK.layer).worst_attn < 1e-10
    shown = run("show", "heads.safetensors")
    assert shown.exit_code == 0
    assert "Recovered: 2 heads." in shown.output
    predicted = run("predict", "heads.safetensors", "data.npz", "-o", "Y.npy")
    assert predicted.exit_code == 0, predicted.output
    np.testing.assert_allclose(np.load("Y.npy"), TASK.Y, atol=1e-12)


def test_json_is_one_object(run):
    result = run("learn-softmax", "data.npz", "--heads", 2, "--method", "moments", "--json")
    content = json.loads(result.stdout)
    assert result.exit_code == 0
    assert content["recovered"] is True
    assert content["outcome"]["name"] == "recovered"
    assert content["n_heads"] == 2
    assert np.shape(content["attn"]) == (2, 3, 3)
    assert {phase["name"] for phase in content["phases"]} >= {"moments", "polish"}


def test_not_recovered_has_its_own_exit_code(run):
    result = run("learn-softmax", "data.npz", "--heads", 1, "--method", "moments", "--json")
    assert result.exit_code == 4
    content = json.loads(result.stdout)
    assert content["recovered"] is False
    assert content["outcome"]["next_step"]


def test_a_linear_target_of_padded_sequences_and_modes(run):
    task = pa.data.planted_softmax(120, 4, 3, mode="last", random_state=1)
    np.save("X.npy", task.X)
    np.save("Y.npy", task.Y)
    result = run("learn-softmax", "X.npy", "--targets", "Y.npy", "--mode", "last")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (("nowhere.npz",), "there is no file", 1),
        (("data.npz", "--heads", 0), "--n-heads must be an integer of at least 1", 1),
        (("data.npz", "--noise", -1), "noise must be a finite number >= 0", 1),
        (("data.npz", "-o", "no/folder/x"), "does not exist", 1),
        (("data.npz", "--method", "magic"), "'magic' is not one of", 2),
    ],
)
def test_misuse_is_one_line(run, arguments, message, code):
    result = run("learn-softmax", *arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("weights", [np.r_[0.0, np.ones(79)], np.arange(1, 81), np.zeros(80)])
def test_weights_are_refused(run, weights):
    np.savez("weighted.npz", X=TASK.X, Y=TASK.Y, weights=weights)
    result = run("learn-softmax", "weighted.npz")
    assert result.exit_code == 1
    assert "learn-softmax does not use: every sequence counts once" in result.stderr
    assert "Leave out the sequences of weight zero, then remove the array." in result.stderr
    assert result.stdout == ""


def test_equal_weights_change_nothing(run):
    np.savez("weighted.npz", X=TASK.X, Y=TASK.Y, weights=np.full(80, 2.5))
    plain, weighted = (
        json.loads(run("learn-softmax", name, "--json").stdout)
        for name in ("data.npz", "weighted.npz")
    )
    assert plain["attn"] == weighted["attn"]
    np.savez("weighted.npz", X=TASK.X, Y=TASK.Y, weights=np.ones(79))
    assert "one weight per sequence" in run("learn-softmax", "weighted.npz").stderr


@pytest.mark.parametrize("verb", [("fit",), ("learn-softmax",)])
@pytest.mark.parametrize("mode", ["causal", "full"])
@pytest.mark.parametrize("n_outputs", [None, 2, 7])
def test_one_target_per_sequence_where_tokens_want_one_each(run, verb, mode, n_outputs):
    lengths = np.random.default_rng(0).integers(2, 6, 30)
    offsets, n_tokens = np.concatenate([[0], np.cumsum(lengths)]), lengths.sum()
    Y = np.ones((30, n_outputs) if n_outputs else 30)
    np.savez("ragged.npz", X=np.ones((n_tokens, 3)), Y=Y, offsets=offsets)
    result = run(*verb, "ragged.npz", "--mode", mode)
    assert result.exit_code == 1
    assert f"Y has 30 targets; mode '{mode}' wants one per token ({n_tokens})" in result.stderr
    padded = np.ones((30, 5, 3))
    np.savez("padded.npz", X=padded, Y=Y, lengths=lengths)
    result = run(*verb, "padded.npz", "--mode", mode)
    assert result.exit_code == 1
    assert f"mode '{mode}' wants one per token (shape (30, 5, n_outputs))" in result.stderr


# The estimator ---------------------------------------------------------------------------------


def test_the_estimator_recovers_and_scores():
    model = REGRESSOR(n_heads=2).fit(TASK.X, TASK.Y)
    assert model.recovered_
    assert model.outcome_.name == "recovered"
    assert match_heads(model.layer_, TASK.layer).worst_attn < 1e-10
    assert (model.n_features_in_, model.n_outputs_) == (3, 3)
    assert model.score(TASK.X, TASK.Y) == pytest.approx(1.0)
    np.testing.assert_allclose(model.predict(TASK.X), TASK.Y, atol=1e-12)
    weights = np.r_[np.ones(40), np.zeros(40)]
    assert model.score(TASK.X, TASK.Y, weights) == pytest.approx(1.0)


def test_predictions_have_the_form_of_the_targets():
    plain = REGRESSOR(n_heads=2).fit(TASK.X, TASK.Y[..., 0])
    assert plain.predict(TASK.X).shape == (80, 3)
    ragged = REGRESSOR(n_heads=2).fit([*TASK.X], [*TASK.Y])
    assert [one.shape for one in ragged.predict([*TASK.X])] == [(3, 3)] * 80
    last = REGRESSOR(n_heads=1, mode="last").fit(TASK.X, TASK.X[:, -1, 0])
    assert last.predict(TASK.X).shape == (80,)


def test_scikit_learn_conventions():
    model = REGRESSOR(n_heads=3, noise=0.1, random_state=5)
    copied = clone(model)
    assert copied.get_params() == model.get_params()
    assert copied is not model
    with pytest.raises(NotFittedError):
        model.predict(TASK.X)
    with pytest.raises(InvalidInput, match="a table"):
        model.fit(TASK.X[:, 0], TASK.Y[:, 0])
    fitted = REGRESSOR(n_heads=2).fit(TASK.X, TASK.Y)
    assert copy.deepcopy(fitted).layer_ == fitted.layer_
    assert repr(REGRESSOR(n_heads=2)) == "SoftmaxAttentionRegressor(n_heads=2)"


def test_cross_validation_and_grid_search():
    scores = cross_val_score(REGRESSOR(n_heads=2), TASK.X, TASK.Y, cv=2)
    np.testing.assert_allclose(scores, 1.0)
    search = GridSearchCV(REGRESSOR(method="moments"), {"n_heads": [1, 2]}, cv=2)
    search.fit(TASK.X, TASK.Y)
    assert search.best_params_ == {"n_heads": 2}
