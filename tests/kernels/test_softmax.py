"""What learning softmax layers rests on and no public name shows; free to die with its kernel."""

from __future__ import annotations

from itertools import combinations, product
from time import monotonic
from types import SimpleNamespace

import numpy as np
import pytest

import polyattn as pa
from polyattn.softmax.examples import ExampleBlock, Examples
from polyattn.softmax.judging import residuals as judging
from polyattn.softmax.moments import initialise
from polyattn.softmax.polish import polish
from polyattn.softmax.recorder import OutOfTime, seconds_left, until
from polyattn.softmax.sculpting import ConvexBody
from polyattn.softmax.sculpting.carve import carve
from polyattn.softmax.sculpting.find_span import find_span
from polyattn.softmax.sculpting.row_patterns import constraints, fit_rows, views
from polyattn.softmax.sculpting.search_span import search_span
from polyattn.softmax.sculpting.sum_of_values import crude_sum, sculpt_again, sharp_sum

pytestmark = pytest.mark.kernel


def boolean_task(count, n_tokens, n_dims, n_heads, seed=0, **options):
    task = pa.data.planted_softmax(
        count, n_tokens, n_dims, n_heads=n_heads, random_state=seed, **options
    )
    return task, Examples((ExampleBlock(task.X, task.Y, None),))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("tails", lambda rng, n: rng.standard_t(4, (n, 4, 2))),
        ("skew", lambda rng, n: rng.standard_exponential((n, 4, 2)) - 1),
        ("sizes", lambda rng, n: rng.standard_normal((n, 4, 2)) * rng.uniform(0.2, 2, (n, 1, 1))),
        ("outputs", lambda rng, n: rng.standard_normal((n, 4, 2)) @ [[1.0, 0.5], [0.5, 1.0]]),
        ("generalises", lambda rng, n: rng.standard_normal((n, 4, 2)) * (3 if n < 100 else 1)),
    ],
)
def test_what_is_not_noise_fails_the_test_made_for_it(name, make):
    rng = np.random.default_rng(0)
    training, held_out = (judging.Residuals(tuple(make(rng, n)), 1.0) for n in (400, 50))
    assert name in judging.alarms(judging.noise_scores(training, held_out, 10))


@pytest.mark.parametrize(
    ("name", "extra", "tokens"),
    [
        (None, lambda *_: 0.0, "boolean"),
        ("linear", lambda X, _: 0.05 * np.roll(X.mean(axis=1, keepdims=True), 1), "boolean"),
        ("products", lambda X, _: 0.05 * X * np.roll(X, 1, axis=2), "boolean"),
        ("curves", lambda X, _: 0.1 * np.tanh(X), "gaussian"),
        ("bends", lambda _, Y: 0.1 * np.tanh(3 * Y), "gaussian"),
    ],
)
def test_a_function_of_the_input_fails_the_test_made_for_it(name, extra, tokens):
    task, _ = boolean_task(300, 4, 4, 2, seed=3, distribution=tokens)
    noise = 0.02 * np.random.default_rng(3).standard_normal(task.Y.shape)
    targets = task.Y + extra(task.X, task.Y) + noise
    examples = Examples((ExampleBlock(task.X, targets, None),))
    here = polish(examples, task.layer.attn, 10)
    left = judging.residuals(examples, here)
    sigma = np.sqrt(left.power / (left.values.size - here.attn.size - here.value.size))
    failed = judging.alarms(judging.structure_scores(examples, left, here, sigma))
    assert failed == () if name is None else name in failed


def random_body(seed, d=2, count=7):
    rng = np.random.default_rng(seed)
    normals, inside = rng.standard_normal((count, d, d)), 2 * rng.standard_normal((d, d))
    slack = rng.uniform(0.5, 2.0, count)
    rhs = np.tensordot(normals, inside) + 0.4 * slack * rng.uniform(-1, 1, count)
    return ConvexBody(normals, rhs, slack), inside


def vertices(body):
    """Every vertex of a small body, by brute force."""
    flat, found = body.normals.reshape(len(body), -1), []
    for chosen in combinations(range(len(body)), flat.shape[1]):
        rows = list(chosen)
        for signs in product([-1, 1], repeat=len(rows)):
            wanted = body.rhs[rows] + np.array(signs) * body.slack[rows]
            point = np.linalg.solve(flat[rows], wanted)
            if np.all(np.abs(flat @ point - body.rhs) <= body.slack + 1e-9):
                found.append(point.reshape(body.normals.shape[1:]))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_extreme_points_are_those_of_the_vertices(seed):
    body, inside = random_body(seed)
    corners = vertices(body)
    for direction in np.random.default_rng(seed).standard_normal((4, 2, 2)):
        best = max(np.vdot(direction, corner) for corner in corners)
        for found in (body.support(direction), body.support(direction, inside)):
            assert found.value == pytest.approx(best, abs=1e-6)
            assert body.contains(found.point)
    # The point of least norm A supports K against itself: <A, B - A> >= 0 for all B in K.
    least = body.minimum_norm()
    assert body.contains(least.point)
    assert min(np.vdot(least.point, corner - least.point) for corner in corners) > -1e-5


def test_strays_count_slacks_and_the_ellipsoid_is_inside():
    body, inside = random_body(0, d=3, count=40)
    t, n_numbers = body.stray(inside), inside.size
    assert t < 1
    outside = inside + 10.0
    needed = body.stray(outside)
    assert not body.contains(outside)
    assert body.widened(1.001 * needed).contains(outside)
    assert not body.widened(0.99 * needed).contains(outside)
    sizes, axes = body.ellipsoid()
    scaled = body.normals.reshape(-1, n_numbers) / body.slack[:, None]
    np.testing.assert_allclose((axes * sizes) @ axes.T, scaled.T @ scaled, atol=1e-9)
    directions = np.random.default_rng(0).standard_normal((50, n_numbers))
    directions /= np.sqrt(np.sum((directions @ axes) ** 2 * sizes, axis=1))[:, None]
    for direction in directions.reshape(-1, 3, 3):
        assert body.contains(inside + (1 - t) * direction)
        assert not body.contains(inside + 1.01 * (1 + t) * np.sqrt(len(body)) * direction)


def test_patterns_of_one_head_are_exact_with_the_true_sum():
    task, examples = boolean_task(200, 4, 6, 1)
    block = examples.groups[0]
    fit = fit_rows(block, task.layer.value[0])
    usable = np.isfinite(fit.residual)
    assert usable.mean() > 0.5
    assert fit.residual[usable].max() < 1e-12
    said = constraints(fit, np.flatnonzero(usable))
    np.testing.assert_allclose(np.tensordot(said.normals, task.layer.attn[0]), said.rhs, atol=1e-8)


PHASES = {
    "sculpt": lambda w: carve(w.blocks, w.S),
    "minimum norm": lambda w: sharp_sum(w.blocks, w.S, w.carved),
    "sculpt again": lambda w: sculpt_again(w.blocks, w.S, 2),
    "span": lambda w: find_span(w.carved, 2, w.rng),
    "search": lambda w: search_span(w.fitting, w.held_out, w.span, 2, w.rng),
    "moments": lambda w: initialise(w.fitting, 2, w.rng),
    "polish": lambda w: polish(w.fitting, np.zeros((1, 5, 5))),
}


@pytest.mark.parametrize("name", PHASES)
def test_every_long_phase_ends_when_the_time_is_over(name):
    rng = np.random.default_rng(0)
    held_out, fitting = boolean_task(400, 4, 5, 2)[1].split(40)
    blocks = views(fitting)
    S = crude_sum(blocks)[0]
    carved = carve(blocks, S)
    made = SimpleNamespace(held_out=held_out, fitting=fitting, blocks=blocks, S=S, carved=carved)
    made.rng, made.span = rng, find_span(carved, 2, rng)
    with until(monotonic()), pytest.raises(OutOfTime):
        PHASES[name](made)
    assert seconds_left() == np.inf
