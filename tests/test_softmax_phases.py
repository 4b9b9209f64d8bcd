"""The six phases without polish: what they claim, containment, certificates, non-degeneracy."""

from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.softmax import methods
from polyattn.softmax.examples import ExampleBlock, Examples
from polyattn.softmax.polish.projection import patterns
from polyattn.softmax.recorder import Recorder
from polyattn.softmax.sculpting import ConvexBody, sculpt
from polyattn.softmax.sculpting.calibrate import SAFETY, calibrate
from polyattn.softmax.sculpting.carve import carve
from polyattn.softmax.sculpting.find_span import find_span
from polyattn.softmax.sculpting.non_degeneracy import least_sight
from polyattn.softmax.sculpting.row_patterns import fit_rows, views
from polyattn.softmax.sculpting.search_span import SpanFamily, best_of_net
from polyattn.softmax.sculpting.sum_of_values import crude_sum, sculpt_again, sharpest


def planted(n_heads, count, n_dims=4, n_tokens=3, logits=1.0, seed=0):
    return pa.data.planted_softmax(
        count, n_tokens, n_dims, n_heads=n_heads, logits=logits, random_state=seed
    )


def examples_of(task):
    X, Y = np.asarray(task.X), np.asarray(task.Y)
    return Examples((ExampleBlock(X, Y, None),))


def hull_of(task):
    """K* of phases 1 to 4 and its S, not calibrated."""
    blocks = views(examples_of(task))
    crude = crude_sum(blocks)[0]
    sharp = sharpest(blocks, crude, {"centre": carve(blocks, crude).centre}).fit.S
    return blocks, *sculpt_again(blocks, sharp, task.layer.n_heads)


# What is claimed without polish


@pytest.fixture(scope="module")
def both():
    """A task, and what is learned without and with polish; bodies are calibrated on one layer."""
    task = planted(2, 150, 8, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "CONFIDENCE", 0.5)
        alone = pa.learn_softmax(task.X, task.Y, 2, "sculpt", polish=False)
    return task, alone, pa.learn_softmax(task.X, task.Y, 2, "sculpt")


def test_the_phases_alone_are_far_from_the_heads_and_say_so(both):
    task, alone, polished = both
    assert pa.match_heads(alone.layer, task.layer).worst_attn > 0.05
    assert pa.match_heads(polished.layer, task.layer).worst_attn < 1e-9
    assert (alone.recovered, polished.recovered) == (False, True)
    assert alone.method == polished.method == "sculpt"
    names = [[phase.name for phase in found.phases] for found in (alone, polished)]
    assert "polish" not in names[0]
    assert names[0][-1] == "judge"
    assert "polish" in names[1]
    assert "polish=True" in alone.outcome.next_step


def test_failed_conditions_are_named_in_the_outcome(both):
    _, alone, polished = both
    conditions = next(p for p in alone.phases if p.name == "conditions").figures["conditions"]
    failed = [condition["name"] for condition in conditions if not condition["holds"]]
    assert "one-hot rows" in failed
    assert f"do not hold here: {', '.join(failed)}." in alone.outcome.sentence
    assert "do not hold" not in polished.outcome.sentence


def test_the_heads_are_those_of_the_last_phase(both):
    """No descent has touched them: they fit as the search in the span left them."""
    _, alone, _ = both
    search = next(phase for phase in alone.phases if phase.name == "search").figures
    assert alone.training_error == pytest.approx(search["fitted"], rel=0.5)
    assert alone.training_error > 1e-3


def test_moments_alone_are_no_claim_either():
    task = planted(2, 200, 8, 4)
    alone = pa.learn_softmax(task.X, task.Y, 2, "moments", polish=False)
    assert alone.method == "moments"
    assert {phase.name for phase in alone.phases}.isdisjoint({"polish", "growth"})
    assert not alone.recovered


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"n_heads": 2, "method": "auto"}, InvalidInput, "method='sculpt'"),
        ({"method": "sculpt"}, InvalidInput, "give n_heads"),
        ({"n_heads": 2, "method": "sculpt", "polish": 0}, InvalidType, "polish"),
    ],
)
def test_polish_is_refused_where_it_means_nothing(options, error, words):
    task = planted(2, 100)
    with pytest.raises(error, match=words):
        pa.learn_softmax(task.X, task.Y, **({"polish": False} | options))


def test_the_estimator_passes_it_on():
    task = planted(1, 100)
    fitted = pa.SoftmaxAttentionRegressor(1, method="moments", polish=False).fit(task.X, task.Y)
    assert "judge" in {phase.name for phase in fitted.result_.phases}


# Containment


def test_the_calibrated_body_contains_all_heads_as_often_as_it_says():
    """Two planted layers are 67 %; of eight other layers at least four, and few before."""
    inside, before = 0, 0
    for seed in range(8):
        task = planted(2, 120, seed=seed)
        blocks, carved, S = hull_of(task)
        found = calibrate(blocks, carved, S, 2, np.random.default_rng(seed), 0.66)
        assert len(found.strays) == 2
        assert found.factor == max(1.0, SAFETY * max(found.strays))
        stray = max(carved.body.stray(A) for A in task.layer.attn)
        inside += stray <= found.factor
        before += stray <= 1.0
    assert inside >= 4
    assert before <= 2


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, np.nan])
def test_a_confidence_is_a_probability(confidence):
    blocks, carved, S = hull_of(planted(1, 60))
    with pytest.raises(InvalidInput, match="confidence"):
        calibrate(blocks, carved, S, 1, np.random.default_rng(0), confidence)


def test_sculpting_with_confidence_certifies_its_heads():
    task = planted(2, 500, 6, 3)
    recorder = Recorder()
    rng = np.random.default_rng(0)
    found = sculpt(examples_of(task), 2, rng, recorder, confidence=0.6)
    figures = {phase.name: phase.figures for phase in recorder.phases}
    assert figures["sculpt again"]["confidence"] == 0.6
    assert len(figures["sculpt again"]["strays"]) == 2
    certified = next(each for each in found.conditions if each.name == "heads in K*")
    assert certified.holds
    assert certified.measured == pytest.approx(max(found.body.stray(A) for A in found.attn))
    assert found.body.stray(3 * found.attn[0]) > certified.measured
    plain = sculpt(examples_of(task), 2, np.random.default_rng(0))
    assert "heads in K*" not in {each.name for each in plain.conditions}


# The body: strays, its ellipsoid, the net in it


def random_body(seed, d=3, count=40):
    rng = np.random.default_rng(seed)
    centre = rng.standard_normal((d, d))
    normals = rng.standard_normal((count, d, d)) * np.geomspace(1, 5, d)
    slack = rng.uniform(0.5, 2.0, count)
    rhs = np.tensordot(normals, centre) + 0.3 * slack * rng.uniform(-1, 1, count)
    return ConvexBody(normals, rhs, slack), centre


@pytest.mark.parametrize("seed", range(3))
def test_the_ellipsoid_lies_in_the_body_and_blown_up_around_it(seed):
    body, centre = random_body(seed)
    t, rng = body.stray(centre), np.random.default_rng(seed)
    assert t < 1
    sizes, axes = body.ellipsoid()
    directions = rng.standard_normal((50, 9))
    directions /= np.sqrt(np.sum((directions @ axes) ** 2 * sizes, axis=1))[:, None]
    for direction in directions.reshape(-1, 3, 3):
        assert body.contains(centre + (1 - t) * direction)
        assert not body.contains(centre + 1.01 * (1 + t) * np.sqrt(len(body)) * direction)
    for direction in rng.standard_normal((5, 3, 3)):
        apart = (body.support(direction).point - centre).ravel()
        assert np.sqrt(np.sum((apart @ axes) ** 2 * sizes)) <= (1 + t) * np.sqrt(len(body))


def test_strays_are_counted_in_slacks():
    body, centre = random_body(4)
    outside = centre + 10.0
    assert body.stray(centre) <= 1.0
    assert body.contains(centre)
    assert not body.contains(outside)
    needed = body.stray(outside)
    assert body.widened(1.001 * needed).contains(outside)
    assert not body.widened(0.99 * needed).contains(outside)
    np.testing.assert_allclose(body.widened(7.0).ellipsoid()[0], body.ellipsoid()[0] / 49)


def test_the_span_does_not_depend_on_the_slack():
    """Only the shape of K* counts: a calibrated body has the directions of the one before."""
    _, carved, _ = hull_of(planted(2, 800, 5, 3))
    wide = replace(carved, body=carved.body.widened(5.0))
    one, two = (find_span(each, 2, np.random.default_rng(0)) for each in (carved, wide))
    assert abs(np.vdot(one.directions, two.directions)) == pytest.approx(1.0, abs=1e-9)
    assert two.widths[0] > 4 * one.widths[0]
    assert one.gram_agreement > 0.9


def test_the_net_has_the_points_of_the_body_alone():
    task = planted(2, 100, 4, 3)
    attn = task.layer.attn
    middle, apart = attn.mean(axis=0), (attn[1] - attn[0]) / 2
    size = np.linalg.norm(apart)
    family = SpanFamily(views(examples_of(task)), np.stack([middle, apart / size]))
    # A slab across the direction of the heads: |<apart, A - middle>| <= half of what they need.
    normal = apart[None] / size
    slab = ConvexBody(normal, np.tensordot(normal, middle), np.array([0.5 * size]))
    rng = np.random.default_rng(0)
    all_points, n_all = best_of_net(family, 2, 2 * size, 1, rng)
    some, n_some = best_of_net(family, 2, 2 * size, 1, rng, slab)
    assert n_some < n_all / 8
    assert max(slab.stray(A) for A in family.attn(some[0])) <= 1.0
    assert max(slab.stray(A) for A in family.attn(all_points[0])) > 1.0


# More examples


def test_more_examples_make_every_phase_better():
    figures = []
    for count in (200, 6000):
        task = planted(2, count, 6, 3, seed=1)
        _, carved, S = hull_of(task)
        attn, total = task.layer.attn, task.layer.value.sum(axis=0)
        directions = find_span(carved, 2, np.random.default_rng(0)).directions
        found = np.linalg.qr(np.stack([carved.centre, directions[0]]).reshape(2, -1).T)[0]
        true = np.linalg.qr(attn.reshape(2, -1).T)[0]
        sine = 1 - np.linalg.svd(found.T @ true, compute_uv=False).min()
        figures.append([np.linalg.norm(S - total), carved.figures["slack"], sine])
    assert np.all(np.array(figures[1]) < 0.7 * np.array(figures[0]))


# Non-degeneracy


def test_a_residual_bounds_the_disagreement_of_heads():
    """sum |p_i - p|^2 <= |r|^2 / sigma_min^2 on every row, and nearly reached on some."""
    task = planted(2, 400, 8, 3, logits=2.0)
    block, attn, value = views(examples_of(task))[0], task.layer.attn, task.layer.value
    S = value.sum(axis=0)
    p = fit_rows(block, S).pattern
    left = np.linalg.norm(block.targets - p @ block.keys @ S, axis=2)
    apart = np.sqrt(sum(np.sum((patterns(block, A) - p) ** 2, axis=2) for A in attn))
    bound = left / least_sight(block, value)[:, None]
    assert np.all(apart <= bound * (1 + 1e-9))
    assert (apart / bound).max() > 0.8


def test_more_heads_than_outputs_show_can_disagree_unseen():
    task = planted(3, 50, 8, 4)
    assert not least_sight(views(examples_of(task))[0], task.layer.value).any()


@pytest.mark.parametrize("mode", ["full", "causal", "last"])
def test_random_layers_are_not_degenerate(mode):
    task = planted(2, 2000, 6, 3)
    layer = pa.SoftmaxAttention(task.layer.attn, task.layer.value, mode)
    assert {c.name for c in pa.softmax.non_degeneracy(layer, task.X).failed} <= {"one-hot rows"}


def test_degenerate_layers_are_named():
    task = planted(2, 2000, 6, 3)
    attn, value = task.layer.attn, task.layer.value

    def failed(attn=attn, value=value, X=task.X):
        report = pa.softmax.non_degeneracy(pa.SoftmaxAttention(attn, value), X)
        assert len(str(report).splitlines()) == 6
        return {condition.name for condition in report.failed}

    assert "heads are independent" in failed(attn=np.stack([attn[0], 1.01 * attn[0]]))
    assert "values do not cancel" in failed(value=np.stack([value[0], -0.99 * value[0]]))
    flat = value.copy()
    flat[:, :, 1:] = 0.0
    assert {"sum of values is regular", "disagreement is seen"} <= failed(value=flat)
    assert "disagreement is seen" in failed(value=np.stack([value[0], value[0]]))
    assert "rows on which heads agree" in failed(X=np.asarray(task.X)[:20])
    assert "one-hot rows" in failed(attn=0.1 * attn)
    assert "one-hot rows" not in failed(attn=np.stack([20 * attn[0], 21 * attn[0]]))


def test_non_degeneracy_takes_ragged_sequences_and_biases():
    rng = np.random.default_rng(0)
    layer = pa.SoftmaxAttention(*rng.standard_normal((2, 2, 4, 4)), bias=True)
    ragged = [rng.standard_normal((n, 3)) for n in (1, 2, 3, 3, 4)]
    report = pa.softmax.non_degeneracy(layer, ragged)
    assert all(np.isfinite(condition.measured) for condition in report.conditions)


def test_non_degeneracy_refuses_what_it_cannot_measure():
    layer = planted(1, 10).layer
    with pytest.raises(InvalidInput, match="3 coordinates; the layer takes 4"):
        pa.softmax.non_degeneracy(layer, np.ones((5, 2, 3)))
    with pytest.raises(InvalidInput, match="one token"):
        pa.softmax.non_degeneracy(layer, np.ones((5, 1, 4)))
    with pytest.raises(InvalidType, match="SoftmaxAttention"):
        pa.softmax.non_degeneracy(None, np.ones((5, 2, 4)))
