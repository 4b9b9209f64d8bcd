"""Classifiers are held against always naming the most frequent class."""

import numpy as np
import pytest

import polyattn as pa

RNG = np.random.default_rng(0)
X = RNG.standard_normal((150, 5, 3))
SCORES = pa.data.random_layer(3, 2, 1, mode="last", random_state=0)(X)[:, 0]
GOOD = np.where(SCORES > 0, "up", "down")
# Nine of ten are the same, and the tokens say nothing of the others.
RARE = np.where(np.arange(150) % 10 == 0, "b", "a")
LOSSES = ["squared", "logistic"]


@pytest.mark.parametrize("loss", LOSSES)
def test_labels_that_are_no_better_than_one_class_are_named(loss):
    model = pa.LinearAttentionClassifier(loss=loss, ridge=1e5).fit(X, RARE)
    assert set(model.predict(X)) == {"a"}
    assert model.majority_share_ == pytest.approx(0.9)
    assert model.training_accuracy_ == pytest.approx(0.9) == model.score(X, RARE)
    assert not model.outcome_.ok
    assert "saying 'a' of all would be right for 0.9" in model.outcome_.sentence
    assert ("Probabilities may" in model.outcome_.next_step) == (loss == "logistic")
    assert model.outcome_ == model.result_.outcome
    assert "accuracy of one class for all" in str(model.result_)


@pytest.mark.parametrize("loss", LOSSES)
def test_good_labels_say_nothing(loss):
    model = pa.LinearAttentionClassifier(loss=loss).fit(X, GOOD)
    assert model.training_accuracy_ == model.score(X, GOOD) > 0.9
    assert model.majority_share_ == max(np.mean(GOOD == "up"), np.mean(GOOD == "down"))
    assert "of all would be right" not in str(model.outcome_)
    assert model.outcome_.ok


def test_weights_and_tokens_count():
    weights = np.where(RARE == "b", 20.0, 1.0)
    model = pa.LinearAttentionClassifier(ridge=1e5).fit(X, RARE, weights)
    assert model.majority_share_ == pytest.approx(300 / 435)
    assert model.training_accuracy_ == pytest.approx(model.score(X, RARE, weights))
    of_tokens = RNG.integers(0, 3, (150, 5))
    causal = pa.LinearAttentionClassifier(mode="causal").fit(X, of_tokens)
    assert causal.majority_share_ == np.bincount(of_tokens.ravel()).max() / 750
    ragged = [each[: 1 + i % 5] for i, each in enumerate(X)]
    labels = [each[: 1 + i % 5] for i, each in enumerate(of_tokens)]
    model = pa.LinearAttentionClassifier(mode="causal").fit(ragged, labels)
    assert model.training_accuracy_ == pytest.approx(model.score(ragged, labels))


def test_streams_know_the_largest_class_and_no_accuracy():
    for labels in (RARE, RNG.integers(0, 3, 150)):
        model = pa.LinearAttentionClassifier(ridge=1.0)
        for part in np.array_split(np.arange(150), 4):
            model.partial_fit(X[part], labels[part], classes=np.unique(labels))
        assert model.training_accuracy_ is None
        largest = max(np.mean(labels == each) for each in np.unique(labels))
        assert model.majority_share_ == pytest.approx(largest)


def test_sources_and_token_ids_are_held_against_it(tmp_path):
    np.savez(tmp_path / "a.npz", X=X[:70], Y=RARE[:70] == "b")
    np.savez(tmp_path / "b.npz", X=X[70:], Y=RARE[70:] == "b")
    model = pa.LinearAttentionClassifier(ridge=1e5).fit(pa.scan(str(tmp_path / "*.npz")))
    assert (model.majority_share_, model.outcome_.ok) == (pytest.approx(0.9), False)
    ids = pa.SequenceBatch.from_ids(RNG.integers(0, 6, (150, 4)), 6)
    model = pa.LinearAttentionClassifier(solver="one_hot", ridge=1.0, bias=False).fit(ids, RARE)
    assert model.majority_share_ == pytest.approx(0.9)
    assert model.training_accuracy_ == pytest.approx(model.score(ids, RARE))


def test_saved_results_know_it(tmp_path):
    result = pa.LinearAttentionClassifier(ridge=1e5).fit(X, RARE).result_
    pa.save(result, tmp_path / "fit.safetensors")
    again = pa.load(tmp_path / "fit.safetensors")
    assert (again.accuracy, again.majority_share) == (result.accuracy, result.majority_share)
    assert again.outcome == result.outcome
