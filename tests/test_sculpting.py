"""The paper's road: six phases that end where descent is exact, and conditions that are named."""

import numpy as np
import pytest

import polyattn as pa
from oracle import MODES, head_errors

ROAD = ["crude sum", "sculpt", "minimum norm", "sculpt again", "span", "search", "conditions"]


def planted(n_heads, count, n_dims=6, n_tokens=3, logits=1.0, seed=0, **options):
    return pa.data.planted_softmax(
        count, n_tokens, n_dims, n_heads=n_heads, logits=logits, random_state=seed, **options
    )


def worst(found, task):
    return max(each.max() for each in head_errors(found.layer, task.layer)[1:])


def figures(found, name):
    return next(phase.figures for phase in found.phases if phase.name == name)


CASES = {
    "one head": {"n_heads": 1, "count": 600},
    "two heads": {"n_heads": 2, "count": 2000},
    "causal": {"n_heads": 2, "count": 2000, "mode": "causal"},
    "last": {"n_heads": 2, "count": 4000, "mode": "last"},
    "ragged": {"n_heads": 2, "count": 2000, "n_tokens": (1, 3)},
    "hard attention": {"n_heads": 2, "count": 4000, "n_dims": 8, "n_tokens": 4, "logits": 8.0},
}


@pytest.mark.parametrize("name", CASES)
def test_the_phases_end_where_descent_is_exact(name):
    task = planted(**CASES[name])
    found = pa.learn_softmax(task.X, task.Y, task.layer.n_heads, "sculpt", mode=task.layer.mode)
    assert found.recovered, found.outcome
    assert found.method == "sculpt"
    assert worst(found, task) < 1e-10
    assert [phase.name for phase in found.phases][:8] == [*ROAD, "polish"]
    # The search alone is already near; one-hot rows are used where attention is hard.
    hard = name == "hard attention"
    assert figures(found, "search")["validated"] < (0.9 if hard else 0.3)
    assert figures(found, "minimum norm")["one_hot"] == hard


def apart(one, other) -> float:
    """The sine of the angle between matrices, of a matrix and the span of several."""
    basis = np.linalg.qr(np.reshape(other, (-1, np.size(one))).T)[0]
    flat = np.ravel(one) / np.linalg.norm(one)
    return float(np.linalg.norm(flat - basis @ (basis.T @ flat)))


def test_more_examples_make_every_phase_better():
    off = []
    for count in (200, 6000):
        task = planted(2, count, seed=1)
        found = pa.learn_softmax(task.X, task.Y, 2, "sculpt")
        attn, total = task.layer.attn, task.layer.value.sum(axis=0)
        moments = pa.learn_softmax(task.X, task.Y, 2, "moments", polish=False)
        sums = [apart(figures(found, name)["S"], total) for name in ("crude sum", "sculpt again")]
        centre = apart(figures(found, "sculpt again")["centre"], attn)
        direction = apart(figures(found, "span")["directions"], attn[1] - attn[0])
        assert sums[1] < 0.8 * sums[0]
        off.append([sums[1], centre, direction, worst(moments, task)])
    assert np.all(np.array(off[1]) < 0.7 * np.array(off[0]))
    assert max(off[1][:3]) < 0.25


def test_the_phases_alone_are_no_claim_and_say_what_failed():
    task = planted(2, 150, 8, 4)
    alone = pa.learn_softmax(task.X, task.Y, 2, "sculpt", polish=False)
    assert worst(alone, task) > 0.05
    assert not alone.recovered
    assert "polish=True" in alone.outcome.next_step
    names = [phase.name for phase in alone.phases]
    assert names == [*ROAD, "judge"]
    # No descent has touched the heads: they fit as the search in the span left them.
    assert alone.training_error == pytest.approx(figures(alone, "search")["fitted"], rel=0.5)
    conditions = figures(alone, "conditions")["conditions"]
    failed = [each["name"] for each in conditions if not each["holds"]]
    assert "one-hot rows" in failed
    assert all(name in str(alone.outcome) for name in failed)
    assert "heads in K*" in {each["name"] for each in conditions}
    moments = pa.learn_softmax(task.X, task.Y, 2, "moments", polish=False)
    assert (moments.recovered, moments.method) == (False, "moments")
    assert {phase.name for phase in moments.phases}.isdisjoint({"polish", "growth"})


def test_conditions_fail_when_they_should():
    for task, failed in (
        (planted(2, 100, 4, 6), {"residual test", "rows on which heads agree"}),
        (planted(2, 100, 3, 3), {"disagreement is seen"}),
        (planted(2, 300, 6, 4, noise=2.0), {"heads agree well"}),
        (planted(2, 150, family="cancel"), {"sum of values"}),
    ):
        found = pa.learn_softmax(task.X, task.Y, 2, "sculpt", polish=False)
        conditions = figures(found, "conditions")["conditions"]
        assert failed <= {each["name"] for each in conditions if not each["holds"]}


@pytest.mark.parametrize("mode", MODES)
def test_random_layers_are_not_degenerate(mode):
    layer = planted(2, 10, mode=mode).layer
    X = pa.data.boolean_sequences(2000, 3, 6)
    assert {each.name for each in pa.softmax.non_degeneracy(layer, X).failed} <= {"one-hot rows"}


def test_degenerate_layers_are_named():
    task = planted(2, 2000)
    attn, value = task.layer.attn, task.layer.value
    flat = value.copy()
    flat[:, :, 1:] = 0.0
    sharp, blunt = np.stack([20 * attn[0], 21 * attn[0]]), 0.1 * attn
    for heads, values, X, expected in (
        (attn, np.stack([value[0], -0.99 * value[0]]), task.X, {"values do not cancel"}),
        (attn, flat, task.X, {"sum of values is regular", "disagreement is seen"}),
        (attn, value, task.X[:20], {"rows on which heads agree"}),
        (blunt, value, task.X, {"one-hot rows"}),
        (sharp, value, task.X, {"heads are independent"}),
    ):
        report = pa.softmax.non_degeneracy(pa.SoftmaxAttention(heads, values), X)
        failed = {condition.name for condition in report.failed}
        assert expected <= failed
        assert failed == {each.name for each in report.conditions if each.measured < each.needed}
        assert ("one-hot rows" in failed) == (heads is not sharp)


@pytest.mark.parametrize("bias", [False, True])
def test_the_share_of_the_mean_in_ragged_sequences_is_that_of_its_definition(bias):
    layer = pa.data.random_softmax_layer(6, n_heads=2, bias=bias, random_state=0)
    X = pa.data.boolean_sequences(2000, 3, 6)
    mine = total = 0.0
    for part in (X[:1000], X[1000:, :2]):
        keys = np.concatenate([part, np.ones((*part.shape[:2], 1))], axis=2)[..., : 6 + bias]
        mine += part.shape[1] * np.sum((keys.mean(axis=1) @ layer.value.sum(axis=0)) ** 2)
        total += np.sum(layer(part) ** 2)
    report = pa.softmax.non_degeneracy(layer, [*X[:1000], *X[1000:, :2]])
    assert report.conditions[0].measured == pytest.approx(mine / total)
