"""The paper's six phases: the convex body as an object, each phase on planted heads, the end."""

import json
from itertools import combinations, permutations, product

import numpy as np
import pytest
from scipy.optimize import minimize

from polyattn.errors import InvalidInput
from polyattn.model import SoftmaxAttention
from polyattn.softmax.examples import ExampleBlock, Examples
from polyattn.softmax.polish import polish, project
from polyattn.softmax.polish.projection import patterns
from polyattn.softmax.recorder import Note, Recorder
from polyattn.softmax.sculpting import ConvexBody, sculpt
from polyattn.softmax.sculpting.carve import GENEROSITY, carve
from polyattn.softmax.sculpting.find_span import find_span
from polyattn.softmax.sculpting.row_patterns import constraints, fit_rows, views
from polyattn.softmax.sculpting.search_span import SpanFamily, best_of_net
from polyattn.softmax.sculpting.slab_programs import linear_program
from polyattn.softmax.sculpting.sum_of_values import crude_sum, sculpt_again, sharp_sum, sharpen


class Planted:
    """Random heads of logit size c and Boolean or Gaussian examples of them."""

    def __init__(self, m, d, k, c=1.0, n=4000, seed=0, e=None, gaussian=False, noise=0.0):
        rng = np.random.default_rng(seed)
        self.attn = rng.standard_normal((m, d, d)) * c / d
        self.value = rng.standard_normal((m, d, e or d)) / np.sqrt(d)
        shape = (n, k, d)
        self.keys = rng.standard_normal(shape) if gaussian else rng.choice([-1.0, 1.0], shape)
        self.noise = noise * rng.standard_normal((n, k, e or d))

    @property
    def total(self):
        return self.value.sum(axis=0)

    @property
    def examples(self):
        return Examples((block_of(self.keys, self.attn, self.value, noise=self.noise),))

    def hull_distance(self, A):
        """||A - affine hull of the heads||, relative to the first head."""
        first = self.attn[0].ravel()
        apart = A.ravel() - first
        if len(self.attn) > 1:
            directions = (self.attn[1:].reshape(len(self.attn) - 1, -1) - first).T
            apart = apart - directions @ np.linalg.lstsq(directions, apart)[0]
        return np.linalg.norm(apart) / np.linalg.norm(first)

    def span_cosine(self, directions):
        """Cosine of the largest angle between the planted and the found directions."""
        true = (self.attn[1:] - self.attn[0]).reshape(len(self.attn) - 1, -1)
        own = np.linalg.qr(true.T)[0].T
        return np.linalg.svd(own @ directions.reshape(len(own), -1).T)[1].min()

    def attn_error(self, attn):
        return min(
            max(relative(attn[j], A) for j, A in zip(order, self.attn, strict=True))
            for order in permutations(range(len(attn)))
        )


def block_of(keys, attn, value, mode="full", noise=0.0):
    outputs = np.array(SoftmaxAttention(attn, value, mode)(keys))
    length = keys.shape[1]
    hidden = ~np.tri(length, dtype=bool) if mode == "causal" else None
    return ExampleBlock(keys, outputs.reshape(len(keys), -1, value.shape[2]) + noise, hidden)


def relative(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)


def figures(recorder, name):
    return next(phase.figures for phase in recorder.phases if phase.name == name)


def names(conditions):
    return {condition.name for condition in conditions}


# The body


def box(centre, half):
    """|A - centre| <= half, entry by entry."""
    size = centre.size
    return ConvexBody(np.eye(size).reshape(size, *centre.shape), centre.ravel(), half.ravel())


def random_body(seed, d=2, count=7, slack=1.0):
    rng = np.random.default_rng(seed)
    normals = rng.standard_normal((count, d, d))
    point = rng.standard_normal((d, d)) * 2
    rhs = np.tensordot(normals, point) + 0.5 * rng.uniform(-slack, slack, count)
    return ConvexBody(normals, rhs, np.full(count, slack)), point


def vertices(body):
    """Every vertex of a small body, by brute force."""
    flat = body.normals.reshape(len(body), -1)
    found = []
    for chosen in combinations(range(len(body)), flat.shape[1]):
        rows = flat[list(chosen)]
        for signs in product([-1, 1], repeat=len(chosen)):
            wanted = body.rhs[list(chosen)] + np.array(signs) * body.slack[list(chosen)]
            point = np.linalg.solve(rows, wanted).reshape(body.normals.shape[1:])
            if body.excess(point).max() < 1e-9:
                found.append(point)
    return found


def test_a_box_is_known_in_every_respect():
    centre, half = np.array([[3.0, -2.0], [0.5, 0.0]]), np.array([[1.0, 0.5], [1.0, 2.0]])
    body = box(centre, half)
    assert body.contains(centre + half)
    outside = centre + np.array([[0, 0.75], [0, 0]])
    assert not body.contains(outside)
    np.testing.assert_allclose(body.excess(outside), [-1.0, 0.25, -1.0, -2.0])
    direction = np.array([[1.0, -2.0], [0.0, 3.0]])
    farthest = body.support(direction)
    assert farthest.value == pytest.approx(
        np.vdot(direction, centre) + np.vdot(abs(direction), half)
    )
    nearest = body.minimum_norm()
    np.testing.assert_allclose(nearest.point, [[2.0, -1.5], [0.0, 0.0]], atol=1e-6)
    assert nearest.value == pytest.approx(2.5, abs=1e-6)
    assert body.feasible().value == pytest.approx(-0.5)


@pytest.mark.parametrize("seed", range(5))
def test_support_points_are_the_best_vertices(seed):
    body, inside = random_body(seed)
    corners = vertices(body)
    for direction in np.random.default_rng(seed + 100).standard_normal((4, 2, 2)):
        best = max(np.vdot(direction, corner) for corner in corners)
        assert body.support(direction).value == pytest.approx(best, abs=1e-7)
        reached = body.support(direction, inside)
        assert reached.value == pytest.approx(best, abs=1e-7)
        assert body.contains(reached.point)


@pytest.mark.parametrize("seed", range(5))
def test_the_point_of_least_norm_is_slsqps(seed):
    body, inside = random_body(seed, d=2, count=9)
    flat = body.normals.reshape(len(body), -1)
    limits = [
        {"type": "ineq", "fun": lambda a: body.slack - (flat @ a - body.rhs)},
        {"type": "ineq", "fun": lambda a: body.slack + (flat @ a - body.rhs)},
    ]
    other = minimize(
        lambda a: a @ a / 2, inside.ravel(), jac=lambda a: a, constraints=limits, tol=1e-12
    )
    found = body.minimum_norm()
    np.testing.assert_allclose(found.point.ravel(), other.x, atol=2e-5)
    assert body.contains(found.point)


def test_unbounded_bodies_say_so():
    seen = ConvexBody(np.eye(4)[:2].reshape(2, 2, 2), np.array([1.0, 2.0]), np.array([0.5, 0.5]))
    assert len(seen.free) == 2
    assert seen.support(np.array([[0.0, 0.0], [1.0, 0.0]])).status == "unbounded"
    assert seen.support(np.array([[1.0, 0.0], [0.0, 0.0]])).value == pytest.approx(1.5)
    assert (
        seen.support(np.array([[0, 0], [1, 0]]), np.array([[1, 2], [0, 0]])).status == "unbounded"
    )
    np.testing.assert_allclose(seen.minimum_norm().point, [[0.5, 1.5], [0, 0]], atol=1e-6)


def test_empty_bodies_say_so():
    twice = np.repeat(np.eye(4), 2, axis=0).reshape(8, 2, 2)
    body = ConvexBody(twice, np.tile([0.0, 3.0], 4), np.full(8, 1.0))
    assert body.feasible().status == "empty"
    assert body.feasible().value == pytest.approx(0.5)
    assert body.support(np.eye(2)).status == "empty"
    assert body.minimum_norm().status == "empty"


def test_without_constraints_everything_is_inside():
    body = ConvexBody(np.zeros((0, 2, 2)), np.zeros(0), np.zeros(0))
    assert body.contains(np.full((2, 2), 1e9))
    assert body.feasible().status == "found"
    assert body.support(np.eye(2)).status == "unbounded"
    assert body.minimum_norm().value == 0.0


def test_cutting_planes_answer_for_all_constraints():
    body, inside = random_body(3, d=4, count=1500)
    direction = np.random.default_rng(5).standard_normal((4, 4))
    flat = body.normals.reshape(len(body), -1)
    _, whole = linear_program(direction.ravel(), flat, body.rhs, body.slack)
    found = body.support(direction)
    assert found.value == pytest.approx(direction.ravel() @ whole, abs=1e-7)
    assert body.contains(found.point)
    assert body.support(direction, inside).value == pytest.approx(found.value, abs=1e-7)
    _, part = linear_program(direction.ravel(), flat[:20], body.rhs[:20], body.slack[:20])
    assert not body.contains(part.reshape(4, 4))
    least = body.minimum_norm()
    assert body.contains(least.point)
    # Optimality: <A, B - A> >= 0 for all B in K, that is, A supports K in direction -A.
    assert body.support(-least.point).value == pytest.approx(-(least.value**2), abs=1e-4)


# The phases


def test_patterns_of_one_head_are_found_exactly_with_the_true_sum():
    planted = Planted(1, 6, 4, n=200)
    block = planted.examples.groups[0]
    fit = fit_rows(block, planted.total)
    usable = np.isfinite(fit.residual)
    assert usable.mean() > 0.5
    assert fit.residual[usable].max() < 1e-12
    true = patterns(block, planted.attn[0])
    np.testing.assert_allclose(fit.pattern[usable], true[usable], atol=1e-10)
    said = constraints(fit, np.flatnonzero(usable))
    np.testing.assert_allclose(np.tensordot(said.normals, planted.attn[0]), said.rhs, atol=1e-8)


def test_deviations_predict_what_an_error_of_the_outputs_does():
    planted = Planted(1, 8, 3, n=1)
    block = planted.examples.groups[0]
    said = constraints(fit_rows(block, planted.total), np.arange(3))
    rng = np.random.default_rng(0)
    size, changes = 1e-5, []
    for _ in range(2000):
        moved = ExampleBlock(
            block.keys, block.targets + size * rng.standard_normal((1, 3, 8)), None
        )
        changes.append(constraints(fit_rows(moved, planted.total), np.arange(3)).rhs - said.rhs)
    np.testing.assert_allclose(np.std(changes, axis=0) / size, said.deviation, rtol=0.1)


def test_patterns_have_no_test_without_equations_to_spare():
    planted = Planted(1, 4, 5, n=50)
    assert np.isinf(fit_rows(planted.examples.groups[0], planted.total).residual).all()


def test_the_crude_sum_is_exact_where_it_must_be():
    single = Planted(2, 5, 1, n=60)
    np.testing.assert_allclose(crude_sum(views_of_any(single))[0], single.total, atol=1e-10)
    flat = Planted(2, 5, 3, c=0.0, n=60)
    np.testing.assert_allclose(crude_sum(views(flat.examples))[0], flat.total, atol=1e-10)


def views_of_any(planted):
    return planted.examples.groups


def test_the_crude_sum_beats_regression_on_the_mean_token():
    planted = Planted(2, 8, 4)
    block = planted.examples.groups[0]
    plain = np.linalg.lstsq(block.keys.mean(axis=1), block.targets.mean(axis=1))[0]
    S, carried = crude_sum(views(planted.examples))
    assert relative(S, planted.total) < 0.7 * relative(plain, planted.total)
    assert 0.2 < carried < 0.8


@pytest.mark.parametrize("seed", range(3))
def test_the_only_head_lies_in_the_first_body(seed):
    planted = Planted(1, 8, 4, n=6000, seed=seed)
    blocks = views(planted.examples)
    carved = carve(blocks, crude_sum(blocks)[0])
    assert carved.body.contains(planted.attn[0])
    assert carved.body.contains(carved.centre)
    assert not carved.body.contains(-planted.attn[0])
    assert not carved.body.contains(1.5 * planted.attn[0])


def test_sharpening_sharpens_at_either_anchor():
    planted = Planted(2, 8, 4, n=8000, seed=1)
    blocks = views(planted.examples)
    crude = crude_sum(blocks)[0]
    carved = carve(blocks, crude)
    note = Note()
    sharp = sharp_sum(blocks, crude, carved, note)
    before = relative(crude, planted.total)
    assert not sharp.one_hot
    assert relative(sharp.fit.S, planted.total) < 0.5 * before
    least = carved.body.widened(1 / GENEROSITY).minimum_norm()
    assert note.figures["norm"] == pytest.approx(least.value)
    assert least.value < np.linalg.norm(carved.centre)
    assert relative(sharpen(blocks, crude, least.point).S, planted.total) < 0.8 * before


def test_one_hot_rows_alone_give_the_sum_when_attention_is_hard():
    planted = Planted(1, 6, 3, c=12.0, n=4000)
    blocks = views(planted.examples)
    found = sharpen(blocks, crude_sum(blocks)[0], planted.attn[0], one_hot=True)
    assert relative(found.S, planted.total) < 1e-3
    assert found.least_margin > 5


@pytest.mark.parametrize(("m", "c", "used"), [(1, 4.0, True), (2, 8.0, True), (2, 1.0, False)])
def test_one_hot_rows_are_used_where_attention_is_hard(m, c, used):
    """There they beat patterns by far; where attention is soft they would ruin the sum."""
    planted = Planted(m, 8, 4, c=c, n=6000, seed=1)
    blocks = views(planted.examples)
    crude = crude_sum(blocks)[0]
    carved = carve(blocks, crude)
    sharp = sharp_sum(blocks, crude, carved)
    assert sharp.one_hot == used
    soft, hard = (
        relative(sharpen(blocks, crude, carved.centre, one_hot).S, planted.total)
        for one_hot in (False, True)
    )
    assert (hard < soft / 5) == used
    assert (hard > 5 * soft) != used


def test_margins_of_one_key_are_infinite():
    """A query that sees one token alone is an exact equation for the sum."""
    planted = Planted(2, 5, 3, n=300)
    single = block_of(planted.keys[:, :1], planted.attn, planted.value)
    blocks = (*views(planted.examples), single)
    found = sharpen(blocks, crude_sum(blocks)[0], planted.attn[0], one_hot=True)
    assert np.isinf(found.least_margin)
    np.testing.assert_allclose(found.S, planted.total, atol=1e-9)


def test_one_head_is_sculpted_to_the_end():
    planted = Planted(1, 8, 4, n=3000)
    blocks = views(planted.examples)
    carved, S = sculpt_again(blocks, crude_sum(blocks)[0], 1)
    assert relative(S, planted.total) < 1e-5
    assert planted.hull_distance(carved.centre) < 1e-5
    assert carved.body.excess(planted.attn[0]).max() < 1e-4


@pytest.fixture(scope="module")
def two_heads():
    planted = Planted(2, 8, 4, n=12000, seed=2)
    blocks = views(planted.examples)
    return planted, *sculpt_again(blocks, crude_sum(blocks)[0], 2)


def test_two_heads_are_enclosed(two_heads):
    planted, carved, S = two_heads
    assert relative(S, planted.total) < 0.05
    assert planted.hull_distance(carved.centre) < 0.1
    for A in planted.attn:
        assert np.mean(carved.body.excess(A) <= 0) > 0.9


def test_the_span_is_where_the_body_is_long(two_heads):
    planted, carved, _ = two_heads
    span = find_span(carved, 2, np.random.default_rng(0))
    assert planted.span_cosine(span.directions) > 0.97
    assert span.gap > 2
    assert span.width_gap > 1.5
    assert span.agreement > 0.9
    assert span.widths[0] > 2 * span.typical_width
    direction = span.directions[0]
    ahead, behind = (carved.body.support(s * direction).value for s in (1, -1))
    assert ahead + behind == pytest.approx(span.widths[0], rel=1e-5)


# The search


@pytest.fixture(scope="module")
def family():
    planted = Planted(3, 5, 3, n=80)
    return planted, SpanFamily(views(planted.examples), planted.attn)


def test_slopes_are_derivatives(family):
    planted, heads = family
    rng = np.random.default_rng(1)
    G, value = rng.standard_normal((3, 3)), planted.value
    slopes = heads.slopes(G, value)
    stacked = value.reshape(-1, value.shape[2])
    for index in range(9):
        step = np.zeros(9)
        step[index] = 1e-6
        step = step.reshape(3, 3)
        change = (heads.seen(G + step) - heads.seen(G - step)) @ stacked / 2e-6
        np.testing.assert_allclose(slopes[:, :, index], change, atol=1e-8)


def test_fits_in_the_span_are_projections(family):
    planted, heads = family
    G = np.random.default_rng(2).standard_normal((3, 3))
    here = heads.fit(G)
    there = project(planted.examples, heads.attn(G))
    assert here.error == pytest.approx(there.error, rel=1e-9)
    np.testing.assert_allclose(here.value, there.value, atol=1e-8)


def test_descent_finds_the_heads_in_their_span(family):
    planted, heads = family
    start = np.eye(3) + 0.2 * np.random.default_rng(3).standard_normal((3, 3))
    found = heads.descend(start)
    assert found.error < 1e-9
    assert planted.attn_error(heads.attn(found.G)) < 1e-7


def test_the_net_finds_the_best_pair():
    planted = Planted(2, 5, 3, n=200)
    middle, apart = planted.attn.mean(axis=0), (planted.attn[1] - planted.attn[0]) / 2
    size = np.linalg.norm(apart)
    heads = SpanFamily(views(planted.examples), np.stack([middle, apart / size]))
    starts, tried = best_of_net(heads, 2, 2 * size, 3, np.random.default_rng(0))
    assert tried == 33 * 32 // 2
    # The heads lie at -size and +size, which are points of the net.
    np.testing.assert_allclose(np.abs(starts[0][:, 1]), size, rtol=1e-12)
    errors = [heads.fit(G).error for G in starts]
    assert errors == sorted(errors)
    assert errors[0] < 1e-4


# All six phases


@pytest.mark.parametrize(
    ("shape", "gaussian"), [((1, 8, 4), False), ((2, 8, 4), False), ((2, 8, 4), True)]
)
@pytest.mark.parametrize("seed", range(10, 12))
def test_the_phases_end_where_polish_is_exact(shape, gaussian, seed):
    planted = Planted(*shape, n=6000, seed=seed, gaussian=gaussian)
    recorder = Recorder()
    found = sculpt(planted.examples, shape[0], np.random.default_rng(seed), recorder)
    assert [phase.name for phase in recorder.phases] == [
        "crude sum",
        "sculpt",
        "minimum norm",
        "sculpt again",
        "span",
        "search",
    ]
    assert figures(recorder, "search")["validated"] < 0.15
    assert names(found.failed) <= {"one-hot rows"}
    polished = polish(planted.examples.first(300), found.attn)
    assert planted.attn_error(polished.attn) < 1e-10
    json.dumps([phase.to_dict() for phase in recorder.phases], allow_nan=False)
    json.dumps([condition.to_dict() for condition in found.conditions], allow_nan=False)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 8, 4), (2, 8, 4), (2, 16, 6), (3, 8, 4)])
@pytest.mark.parametrize("seed", range(20, 23))
def test_the_phases_end_where_polish_is_exact_at_full_size(shape, seed):
    planted = Planted(*shape, n=20_000, seed=seed)
    recorder = Recorder()
    found = sculpt(planted.examples, shape[0], np.random.default_rng(seed), recorder)
    polished = polish(planted.examples.first(500), found.attn)
    assert planted.attn_error(polished.attn) < 1e-10
    centre = np.array(figures(recorder, "sculpt again")["centre"])
    assert planted.hull_distance(centre) < {1: 1e-5, 2: 0.09, 3: 0.2}[shape[0]]


@pytest.mark.parametrize(("n_heads", "n_dims"), [(2, 1), (5, 2), (70, 2)])
def test_more_heads_than_directions_are_a_value(n_heads, n_dims):
    planted = Planted(2, n_dims, 3, n=400)
    found = sculpt(planted.examples, n_heads, np.random.default_rng(0))
    assert found.attn.shape == (n_heads, n_dims, n_dims)
    assert "disagreement is seen" in names(found.failed)
    assert np.isfinite(found.attn).all()


def test_noise_is_borne():
    planted = Planted(2, 8, 4, n=6000, seed=4, noise=0.03)
    found = sculpt(planted.examples, 2, np.random.default_rng(0))
    polished = polish(planted.examples, found.attn)
    assert planted.attn_error(polished.attn) < 0.02


@pytest.mark.parametrize("mode", ["causal", "last", "ragged"])
def test_other_modes_and_lengths_are_sculpted_too(mode):
    planted = Planted(2, 6, 4, n=4000, seed=5)
    groups = [block_of(planted.keys, planted.attn, planted.value, mode.replace("ragged", "full"))]
    if mode == "ragged":
        groups += [block_of(planted.keys[:, :n], planted.attn, planted.value) for n in (1, 2)]
    examples = Examples(tuple(groups))
    found = sculpt(examples, 2, np.random.default_rng(0))
    polished = polish(examples.first(1000), found.attn)
    assert planted.attn_error(polished.attn) < 1e-10


def test_conditions_fail_when_they_should():
    def failed(planted, **changes):
        for name, value in changes.items():
            setattr(planted, name, value)
        return names(sculpt(planted.examples, 2, np.random.default_rng(0)).failed)

    assert {"residual test", "rows on which heads agree"} <= failed(Planted(2, 4, 6, n=500))
    three = Planted(3, 8, 4, n=2000)
    assert "disagreement is seen" in names(
        sculpt(three.examples, 3, np.random.default_rng(0)).failed
    )
    two = Planted(2, 6, 3, n=2000)
    value = two.value
    assert "sum of values" in failed(two, value=np.stack([value[0], -value[0]]))
    singular = value.copy()
    singular[:, :, 2:] = 0.0
    assert "sum of values is regular" in failed(two, value=singular)
    assert "one-hot rows" in failed(two, value=value, attn=0.1 * two.attn)
    assert "spectral gap" in failed(two, attn=10 * np.stack([two.attn[0]] * 2))
    assert "rows on which heads agree" in failed(Planted(2, 6, 3, n=8))
    assert "fit in the span" in failed(Planted(2, 8, 4, c=8.0, n=1000))
    noisy = failed(Planted(2, 6, 4, n=1000, noise=2.0))
    assert "heads agree well" in noisy


def test_the_same_seed_gives_the_same_heads():
    examples = Planted(2, 5, 3, n=1000).examples
    one, two = (sculpt(examples, 2, np.random.default_rng(8)) for _ in range(2))
    np.testing.assert_array_equal(one.attn, two.attn)


def test_better_heads_are_recorded_and_the_callback_may_stop():
    examples = Planted(2, 5, 3, n=1000).examples
    calls = []
    recorder = Recorder(lambda *step: calls.append(step))
    sculpt(examples, 2, np.random.default_rng(0), recorder)
    assert recorder.best.attn.shape == (2, 5, 5)
    assert calls[-1] == ("search", 2, recorder.best.error)

    def stop(*_):
        raise TimeoutError

    recorder = Recorder(stop)
    with pytest.raises(TimeoutError):
        sculpt(examples, 2, np.random.default_rng(0), recorder)
    assert recorder.phases[-1].sentence == "Not finished."


def test_misuse_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidInput, match="at least two tokens"):
        sculpt(Planted(1, 4, 1, n=20).examples, 1, rng)
    with pytest.raises(InvalidInput, match="n_heads"):
        sculpt(Planted(1, 4, 2, n=20).examples, 0, rng)
    with pytest.raises(InvalidInput, match="two different examples"):
        sculpt(Planted(1, 4, 2, n=1).examples, 1, rng)
    block = Planted(1, 4, 3, n=20).examples.groups[0]
    odd = Examples((ExampleBlock(block.keys, block.targets, np.eye(3, dtype=bool)),))
    with pytest.raises(InvalidInput, match="another pattern"):
        sculpt(odd, 1, rng)
