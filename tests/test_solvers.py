"""Every way to the optimum: right to rounding, whatever the data, their form and their sizes."""

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge

import oracle
import polyattn as pa
from oracle import EPS, MODES

# Ways that never square the condition number (primal by its refinement), and those that do.
ACCURATE = ("primal", "direct", "factor")
SQUARING = ("dual", "moments", "iterative")
WAYS = ACCURATE + SQUARING
SOLVERS = ("primal", "dual", "direct", "iterative")


def fit_by(way, X, Y, fields=None, ridge=0.0, weights=None, context=None):
    """The fit by one of WAYS."""
    form = pa.Form(**(fields or {}))
    if way not in ("moments", "factor"):
        return pa.fit(
            X, Y, form=form, ridge=ridge, solver=way, sample_weight=weights, context=context
        )
    make = pa.Moments if way == "moments" else pa.TriangularFactor
    n_outputs = np.atleast_2d(Y[0] if form.mode == "last" else Y[0][-1]).shape[1]
    width = None if context is None else context[0].shape[1]
    sums = make(X[0].shape[1], n_outputs, form=form, n_context_dims=width)
    cut = len(X) // 3
    for part in (slice(cut), slice(cut, None)):
        if len(X[part]):
            more = {} if context is None else {"context": context[part]}
            sums.update(X[part], Y[part], None if weights is None else weights[part], **more)
    return pa.fit(statistics=sums, ridge=ridge)


# ------------------------------------------------------------------ against rational arithmetic


@dataclass(frozen=True)
class Case:
    """Small integers as data, their exact minimiser, and what rounding may do to it."""

    X: list
    rows: np.ndarray
    form: dict
    ridge: float
    weights: np.ndarray | None

    @property
    def Y(self):  # noqa: N802
        if self.form["mode"] == "last":
            return self.rows
        return np.split(self.rows, np.cumsum([len(x) for x in self.X])[:-1])

    @cached_property
    def exact(self):
        return oracle.ExactFit.of(self.X, self.rows, self.form, self.ridge, self.weights)

    @cached_property
    def root_sizes(self):
        return np.sqrt([oracle.nearest(size) for size in self.exact.sizes])

    @cached_property
    def theta(self):
        return oracle.numbers(self.exact.coef) * self.root_sizes[:, None]

    @cached_property
    def root(self):
        """Features times the roots of weights, in the coordinates of the norm."""
        weights = np.array([oracle.nearest(w) for w in self.exact.weights])
        return np.sqrt(weights)[:, None] * oracle.numbers(self.exact.psi) / self.root_sizes

    @cached_property
    def stacked(self):
        return np.concatenate([self.root, np.sqrt(self.ridge) * np.eye(len(self.theta))])

    @cached_property
    def is_unique(self):
        return self.ridge > 0 or self.exact.rank == len(self.theta)

    @cached_property
    def columns(self):
        """Units in which coefficients are compared: sizes of features, where all are determined."""
        norms = np.linalg.norm(self.stacked, axis=0)
        return np.where((norms > 0) & self.is_unique, norms, 1.0)

    @cached_property
    def condition(self):
        sigma = np.linalg.svd(self.stacked / self.columns, compute_uv=False)
        return float(sigma[0] / sigma[(len(sigma) if self.is_unique else self.exact.rank) - 1])

    @cached_property
    def kernel_condition(self):
        """How the rounding of (K + ridge) alpha = y reaches the coefficients Phi^T alpha."""
        weights = np.array([oracle.nearest(w) for w in self.exact.weights])
        targets = np.sqrt(weights)[:, None] * self.rows
        left, sigma, _ = np.linalg.svd(self.root, full_matrices=False)
        if not self.ridge:
            left, sigma = left[:, : self.exact.rank], sigma[: self.exact.rank]
        sigma = np.maximum(sigma, EPS * sigma[0])
        inside = left.T @ targets
        alpha = np.linalg.norm(inside / (sigma**2 + self.ridge)[:, None])
        if self.ridge:
            alpha += np.linalg.norm(targets - left @ inside) / self.ridge
        size = np.linalg.norm(self.theta) * np.min(sigma + self.ridge / sigma)
        return float(sigma[0] ** 2 * alpha / (size or 1.0))

    def error(self, result):
        """Of the coefficients, relative, in units of their features."""
        found = oracle.features_of(result.coef, self.form) * self.root_sizes[:, None]
        units = self.columns[:, None]
        return oracle.relative_error(units * found, units * self.theta)

    def tolerance(self, way):
        """What perturbations of size eps explain, times a modest constant.

        Least squares: eps (kappa + kappa^2 misfit) [Wedin 1973]; normal equations: eps kappa^2;
        conjugate gradients stop at 1e-12 instead of eps; the dual has a condition of its own.
        """
        power = oracle.nearest(self.exact.residual_power)
        size = np.linalg.norm(self.stacked / self.columns, 2)
        size *= np.linalg.norm(self.columns[:, None] * self.theta)
        misfit = np.sqrt(power + self.ridge * np.sum(self.theta**2)) / (size or 1.0)
        factor = self.condition + self.condition**2 * misfit
        if way in SQUARING:
            factor = self.kernel_condition if way == "dual" else self.condition**2
        return factor * (1e-12 if way == "iterative" else 10 * EPS * len(self.theta))

    def risk_rounding(self, way):
        """Quadratic in the error, but for the dual, whose residuals y - K alpha cancel."""
        relative = self.tolerance(way) if way == "dual" else 1e-13 * self.condition
        return relative * float(np.mean(np.sum(self.rows**2, axis=1)))

    def fit(self, way):
        return fit_by(way, self.X, self.Y, self.form, self.ridge, self.weights)


@cache
def case(kind, mode="last", ridge=0.0, variant="one output"):
    """A problem of one of the kinds below."""
    rng = np.random.default_rng(sum(map(ord, kind + variant)))
    form = {"mode": mode, "bias": variant == "bias"}
    p = 18 if form["bias"] else 6
    per_sequence = 1 if mode == "last" else 3
    shape = {
        "wide": (max(1, p // (2 * per_sequence)), 3, 2), "wide units": (4, 3, 2),
        "nearly alike": (4, 3, 2), "square": (p // per_sequence, 3, 2),
        "one token": (2 * p + 6, 1, 2), "duplicates": (p // (2 * per_sequence), 3, 2),
    }.get(kind.rstrip(" 0123456789"), (2 * p + 6, 3, 2))  # fmt: skip
    X = rng.integers(-3, 4, size=shape).astype(float)
    bits = int(kind.rsplit(maxsplit=1)[-1]) if kind.startswith("nearly") else 0
    if kind == "flat":
        X[..., 1] = -X[..., 0]
    elif kind == "duplicates":
        X = np.repeat(X, 5, axis=0)
    elif kind in ("constant", "zero column"):
        X[..., 0] = 2.0 * (kind == "constant")
    elif kind == "one hot":
        X = np.eye(2)[rng.integers(2, size=shape[:2])]
    elif kind.endswith("units"):
        X[..., 1] *= 1e5
    elif kind.startswith("nearly flat"):
        X[..., 0] = 2.0**bits * rng.integers(-3, 4, size=shape[:2])
        X[..., 1] += X[..., 0]
    elif kind.startswith("nearly alike"):
        X *= 2.0**bits
        X[1] = X[0] + rng.integers(1, 4, size=X[1].shape)
    X = [x[: 1 + i % 3] for i, x in enumerate(X)] if kind == "ragged" else list(X)
    n_rows = len(X) if mode == "last" else sum(map(len, X))
    rows = rng.integers(-9, 10, size=(n_rows, 1 if variant == "one output" else 3)).astype(float)
    weights = rng.integers(0, 4, size=len(X)).astype(float) if variant == "weights" else None
    if weights is not None:
        weights[0] = 2.0
    return Case(X, rows, form, ridge, weights)


KINDS = (
    "tall", "wide", "square", "flat", "duplicates", "constant", "zero column", "one token",
    "one hot", "ragged",
)  # fmt: skip
# Each mode, ridge and variant with each other one.
CHOICES = [
    (mode, ridge, ("one output", "weights", "bias")[(i + j) % 3])
    for i, mode in enumerate(MODES)
    for j, ridge in enumerate((0.0, 1e-6, 1.0))
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_solver_finds_the_exact_optimum(kind):
    for choice in CHOICES:
        task = case(kind, *choice)
        is_unique = task.exact.rank == len(task.theta)
        for way in WAYS:
            result, where = task.fit(way), (choice, way)
            error = task.error(result)
            assert error < task.tolerance(way), where
            # The tolerance is no excuse where nothing is ill-conditioned.
            assert error < 1e-9 or way == "iterative" or task.ridge == 1e-6, where
            risk = oracle.nearest(task.exact.risk)
            assert result.risk == pytest.approx(risk, rel=1e-7, abs=task.risk_rounding(way)), where
            name = "unique" if is_unique else "minimum_norm"
            rank = task.exact.rank
            if task.ridge or way == "iterative":
                rank, name = None, "regularised" if task.ridge else "iterative"
            assert (result.rank, result.outcome.name, result.ridge) == (rank, name, task.ridge)


def test_the_table_tells_a_wrong_answer():
    """Negative control: a perturbation in the eighth digit, or another ridge, is seen."""
    task, other = case("tall", "last", 1.0), case("tall", "last", 0.0)
    limit = max(map(task.tolerance, ACCURATE))
    assert limit < 1e-9
    assert oracle.relative_error(other.theta, task.theta) > task.tolerance("moments")


@pytest.mark.parametrize("family", sorted({name.split("-")[0] for name in oracle.FORMS}))
def test_every_solver_takes_every_form(family):
    for name in (each for each in oracle.FORMS if each.split("-")[0] == family):
        check_form(name)


def check_form(name):
    form, context_dims = oracle.split_context(oracle.FORMS[name])
    rng = np.random.default_rng(0)
    mixing = np.array([[2, 0, 0], [1, 1, 0], [0, 1, 0.5]])
    n_sequences = 120 if form.get("mode", "last") == "last" else 40
    X = [rng.standard_normal((4, 3)) @ mixing + [0.5, 0.0, -1.0] for _ in range(n_sequences)]
    context = oracle.contexts_for(X, form, context_dims)
    psi = oracle.design(X, form, context)
    weights = rng.uniform(0.5, 3.0, n_sequences)
    rows = rng.standard_normal((len(psi), 2))
    Y = rows if len(rows) == n_sequences else rows.reshape(n_sequences, 4, 2)
    by_row = np.repeat(weights, len(psi) // n_sequences)
    S, u = oracle.summaries(X[0], form, context and context[0])[0]
    sizes = oracle.squared_sizes(form, context_dims or 3, len(u))
    for ridge in (0.0, 10.0):
        theta = oracle.least_squares(psi, rows, sizes, ridge, by_row)
        outputs = psi @ theta
        risk = np.sum(by_row[:, None] * (rows - outputs) ** 2) / by_row.sum()
        for way in WAYS:
            result = fit_by(way, X, Y, form, ridge, weights, context)
            found = psi @ oracle.features_of(result.coef, form)
            assert oracle.relative_error(found, outputs) < 1e-7, (way, ridge)
            assert result.risk == pytest.approx(risk, rel=1e-8), (way, ridge)
            if ridge:
                wanted = oracle.table_of(theta, form, len(S), len(u))
                assert oracle.relative_error(result.coef, wanted) < 1e-8, way


def test_rival_libraries_have_the_same_minimiser():
    """scikit-learn knows neither our features nor our norm: Ridge gets the first, a kernel both."""
    rng = np.random.default_rng(1)
    fresh = rng.standard_normal((7, 6, 3))
    for kind in ("tall", "wide", "flat", "boolean"):
        task = oracle.planted(kind, noise=1.0)
        weights = rng.uniform(0, 3, len(task.X))
        root = np.sqrt(oracle.squared_sizes({}, 3, 3))
        phi, inner, across = (
            oracle.plain_design(task.X) / root, _kernel(task.X, task.X), _kernel(fresh, task.X),
        )  # fmt: skip
        for ridge in (0.1, 1.0, 50.0):
            linear = Ridge(alpha=ridge, fit_intercept=False, solver="svd")
            linear.fit(phi, task.Y, sample_weight=weights)
            kernel = KernelRidge(alpha=ridge, kernel="precomputed").fit(inner, task.Y)
            for way in WAYS:
                found = fit_by(way, task.X, task.Y, ridge=ridge, weights=weights)
                theta = oracle.features_of(found.coef, {}).T * root
                assert oracle.relative_error(theta, linear.coef_) < 1e-9, (kind, ridge, way)
                found = fit_by(way, task.X, task.Y, ridge=ridge)
                error = oracle.relative_error(found.predict(fresh), kernel.predict(across))
                assert error < 1e-9, (kind, ridge, way)


def _kernel(X, Z):
    """<T(X), T(Z)> = (query . query') ||X Z^T||^2, the inner product behind ||T||."""
    grams = np.einsum("xta,zsa->xzts", X, Z)
    return np.sum(grams**2, axis=(2, 3)) * (X[:, -1] @ Z[:, -1].T)


def test_the_norm_is_that_of_the_symmetric_tensor():
    """Among all coefficients of the same outputs, ours has the least ||T||, not the least ||P||."""
    task = oracle.planted("wide")
    psi = oracle.plain_design(task.X)
    plain = np.linalg.lstsq(psi, task.Y, rcond=None)[0]

    def norms(theta):
        table, T = oracle.table_of(theta, {}, 6, 3), np.zeros((2, 3, 3, 3))
        for i, (j, k) in enumerate(oracle.pairs({}, 3)):
            T[:, j, k] += table[:, i] / 2
            T[:, k, j] += table[:, i] / 2
        return np.linalg.norm(T), np.linalg.norm(table)

    for way in WAYS:
        theta = oracle.features_of(fit_by(way, task.X, task.Y).coef, {})
        ours, others = norms(theta), norms(plain)
        assert ours[0] < others[0] - 1e-3
        assert ours[1] > others[1]


# ------------------------------------------------------------------ near and beyond the limits


@pytest.mark.parametrize("mode", MODES)
def test_nearly_dependent_features_are_solved_to_kappa_eps(mode):
    """Tokens almost on a line: kappa from 1e4 to 1e10, the sums of squares have its square."""
    for bits in (4, 6, 8, 10):
        task = case(f"nearly flat {bits}", mode)
        for way in (*ACCURATE, "auto"):
            result = task.fit(way)
            assert task.error(result) < task.tolerance(way), (bits, way)
            assert (result.rank, result.outcome.name) == (6, "unique"), (bits, way)
            rounding = 10 * EPS * task.condition
            assert result.risk == pytest.approx(oracle.nearest(task.exact.risk), rel=rounding)
            assert task.condition / 100 < result.condition < task.condition * 100


def test_moments_alone_are_right_or_say_what_they_cannot_see():
    for bits in (4, 6, 8, 10):
        task = case(f"nearly flat {bits}")
        result = task.fit("moments")
        assert (result.outcome.name == "unique") == (bits < 8)
        if bits < 8:
            assert task.error(result) < task.tolerance("moments")
        else:
            assert "TriangularFactor" in str(result.outcome)
        # Whatever the coefficients, the risk is theirs, up to the cancellation of <P, M P>.
        loss = np.mean(np.sum((task.rows - result.predict(task.X)) ** 2, axis=1))
        trace = np.trace(oracle.second_moment(oracle.plain_design(np.array(task.X))))
        assert result.risk == pytest.approx(
            loss, rel=1e-9, abs=10 * EPS * trace * np.linalg.norm(result.coef) ** 2
        )


def test_a_condition_beyond_float64_is_called_rank_deficient():
    task = case("nearly flat 20")
    assert task.exact.rank == 6
    for way in ACCURATE:
        result = task.fit(way)
        assert result.outcome.name == "minimum_norm"
        assert result.rank < 6


@pytest.mark.parametrize("bits", [6, 10, 14])
def test_a_kernel_is_refined_to_kappa_eps(bits):
    """Two sequences almost the same: the kernel alone would leave an error of kappa^2 eps."""
    task = case(f"nearly alike {bits}")
    result = task.fit("dual")
    assert 2**bits < task.condition < 2 ** (bits + 9)
    assert result.condition < 10 * task.condition
    assert task.error(result) < task.tolerance("direct")
    assert result.risk < (10 * EPS * task.condition) ** 2 * float(np.mean(task.rows**2))


@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1.0, 1e6])
def test_coordinates_of_different_units_keep_their_accuracy(ridge):
    """Tokens (1, 1e5): features from 1 to 1e15; what cannot be right must not be pretended."""
    for mode in MODES:
        task = case("units", mode, ridge)
        for way in (*ACCURATE, "moments"):
            assert task.error(task.fit(way)) < 1e-9, (mode, way)
    task = case("wide units", "last", ridge)
    for way in ("dual", "direct", "primal", "auto"):
        result = task.fit(way)
        wanted = oracle.numbers(task.exact.predicted)
        assert oracle.relative_error(result.predict(task.X), wanted) < 1e-6, way
        risk = oracle.nearest(task.exact.risk)
        assert result.risk == pytest.approx(risk, abs=1e-9 * float(np.mean(task.rows**2))), way


@pytest.mark.parametrize("power", [6, 5, 4, 3])
@pytest.mark.parametrize("size", [1e-3, 1e-8])
def test_few_rows_beside_a_constant_of_another_size(size, power):
    """Features from 1 down to 1e-24: outputs are the minimiser's, and rounding is told of."""
    rng = np.random.default_rng(3)
    X, Y, ridge = size * rng.standard_normal((12, 3, 2)), rng.standard_normal((12, 1)), size**power
    exact = oracle.ExactFit.of(list(X), Y, {"bias": True}, ridge)
    for solver in ("auto", "dual", "direct", "primal"):
        found = pa.fit(X, Y, bias=True, ridge=ridge, solver=solver)
        np.testing.assert_allclose(found.predict(X), oracle.numbers(exact.predicted), atol=1e-9)
        assert found.risk == pytest.approx(oracle.nearest(exact.risk), rel=1e-9, abs=1e-18)
        assert found.outcome.ok == (found.condition < 1e13)


def test_rows_of_very_different_size_are_all_met():
    """From 1e-9 to 1, and beyond what coefficients can meet: then the largest rows count."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4, 2)) * np.logspace(-3, 0, 30)[:, None, None]
    truth = rng.standard_normal((6, 1))
    for solver in ("primal", "dual", "direct"):
        found = oracle.features_of(
            pa.fit(X, oracle.plain_design(X) @ truth, solver=solver).coef, {}
        )
        assert oracle.relative_error(found, truth) < 1e-9, solver
    X, Y = rng.standard_normal((60, 4, 6)), rng.standard_normal((60, 1))
    X *= np.geomspace(1, 1e-6, 60)[:, None, None]
    found, exact = (pa.fit(X, Y, solver=solver) for solver in ("dual", "direct"))
    assert found.rank == exact.rank < 60
    assert found.risk == pytest.approx(exact.risk, rel=1e-9)


def test_a_small_ridge_that_steadies_moments_is_added():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, Y = rng.standard_normal((200, 4, 2)), rng.standard_normal((200, 1))
        X[..., 1] = X[..., 0] + 0.02 * X[..., 1]
        ridge = 3e-13 * float(np.sum(oracle.plain_design(X) ** 2))
        found, expected, without = (
            fit_by("moments", X, Y, ridge=ridge), fit_by("direct", X, Y, ridge=ridge),
            fit_by("direct", X, Y),
        )  # fmt: skip
        assert oracle.relative_error(found.coef, expected.coef) < 1e-2
        assert np.linalg.norm(expected.coef) < 0.9 * np.linalg.norm(without.coef)


# ------------------------------------------------------------------ laws


@given(
    st.sampled_from(MODES), st.integers(-60, 60), st.integers(-60, 60), st.integers(-30, 30),
    st.sampled_from([0.0, 0.5]), st.integers(0, 99),
)  # fmt: skip
def test_powers_of_two_change_no_bit(mode, tokens, targets, weights, ridge, seed):
    """Of tokens, targets and weights; the ridge has the units of squared features and weights."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((int(rng.integers(1, 12)), 3, 2))
    Y = rng.standard_normal((len(X), 1) if mode == "last" else (*X.shape[:2], 1))
    given = rng.uniform(0.5, 2.0, len(X))
    for way in WAYS:
        one = fit_by(way, X, Y, {"mode": mode}, ridge, given)
        penalty = float(np.ldexp(ridge, 6 * tokens + 2 * weights))
        other = fit_by(
            way, np.ldexp(X, tokens), np.ldexp(Y, targets), {"mode": mode}, penalty,
            np.ldexp(given, 2 * weights),
        )  # fmt: skip
        np.testing.assert_array_equal(np.ldexp(one.coef, targets - 3 * tokens), other.coef)
        assert np.ldexp(one.risk, 2 * targets) == other.risk
        assert (one.rank, one.outcome.name) == (other.rank, other.outcome.name)


@given(st.sampled_from(MODES), st.sampled_from([0.0, 1.0]), st.integers(0, 99))
def test_weights_count_sequences_in_any_order(mode, ridge, seed):
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((n, 2)) for n in rng.integers(1, 4, 16)]
    Y = [rng.standard_normal((1 if mode == "last" else len(x), 2)) for x in X]
    Y = np.concatenate(Y) if mode == "last" else Y
    counts = rng.integers(0, 3, len(X))
    counts[0] = 1
    copies = rng.permutation(np.repeat(np.arange(len(X)), counts))
    many = Y[copies] if mode == "last" else [Y[i] for i in copies]
    psi = oracle.design([X[i] for i in copies], {"mode": mode})
    # Where the ridge alone decides, rounding is larger by the condition number.
    values = np.linalg.svd(psi, compute_uv=False)
    if ridge == 0.0 and (len(values) < 6 or values[-1] < 1e-2 * values[0]):
        return
    for way in WAYS:
        weighted = fit_by(way, X, Y, {"mode": mode}, ridge, counts.astype(float))
        repeated = fit_by(way, [X[i] for i in copies], many, {"mode": mode}, ridge)
        assert oracle.relative_error(weighted.coef, repeated.coef) < 1e-8, way
        assert weighted.risk == pytest.approx(repeated.risk, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize("scale", [1e-11, 1e-3, 1e5])
def test_the_dual_does_not_depend_on_sizes(scale, ridge):
    """Of tokens, of weights, all alike or not: independent rows are met, whatever they weigh."""
    rng = np.random.default_rng(0)
    X, Y, fresh = (rng.standard_normal(shape) for shape in ((40, 5, 12), (40, 2), (9, 5, 12)))
    padded = np.concatenate([scale * X, np.zeros((2, 5, 12))])
    # Sequences of zeros are predicted as zero, and change nothing else.
    outputs = np.concatenate([Y, np.ones((2, 2))])
    kernel = _kernel(X, X) + ridge * np.eye(40)
    expected = _kernel(fresh, X) @ np.linalg.solve(kernel, Y)
    found = pa.fit(padded, outputs, ridge=ridge * scale**6, solver="dual")
    assert oracle.relative_error(found.predict(scale * fresh), expected) < 1e-11
    assert (found.solver, found.rank) == ("dual", None if ridge else 40)
    residual = np.sum((Y - _kernel(X, X) @ np.linalg.solve(kernel, Y)) ** 2)
    assert found.risk == pytest.approx((4 + residual) / 42, rel=1e-9)
    if ridge == 0.0:
        for weights in (np.full(40, scale**4), 10.0 ** rng.uniform(-40, 0, 40)):
            found = pa.fit(X, Y, solver="dual", sample_weight=weights)
            assert oracle.relative_error(found.predict(fresh), expected) < 1e-11


@pytest.mark.parametrize("apart", [0.0, 1e-6, 1e-8])
def test_a_singular_kernel_finds_the_mean_or_says_what_it_hides(apart):
    """Repeated sequences of unlike targets, with features too many to hold (p = 864,000)."""
    rng = np.random.default_rng(0)
    X, Y = np.repeat(rng.standard_normal((20, 3, 120)), 2, axis=0), rng.standard_normal((40, 2))
    X += apart * rng.standard_normal(X.shape)
    found = pa.fit(X, Y, solver="dual")
    outputs = found.predict(X)
    assert found.risk == pytest.approx(np.mean(np.sum((outputs - Y) ** 2, axis=1)), rel=1e-6)
    if apart == 0.0:
        wanted = np.repeat((Y[::2] + Y[1::2]) / 2, 2, axis=0)
        assert oracle.relative_error(outputs, wanted) < 1e-9
        assert (found.rank, found.outcome.name) == (20, "minimum_norm")
    else:
        # All rows could be met.
        excess = found.risk / np.mean(np.sum(Y**2, axis=1))
        assert excess < 1e-6 or not found.outcome.ok
    ridge = 1e-6 * float(np.max(_kernel(X, X)))
    penalised = pa.fit(X, Y, solver="dual", ridge=ridge)
    alpha = np.linalg.solve(_kernel(X, X) + ridge * np.eye(40), Y)
    assert oracle.relative_error(penalised.predict(X), _kernel(X, X) @ alpha) < 1e-6


def test_more_rows_than_blocks_of_the_dual():
    for n_rows in (512, 513, 600):
        rng = np.random.default_rng(0)
        X, Y = rng.standard_normal((n_rows, 3, 11)), rng.standard_normal((n_rows, 2))
        found = pa.fit(X, Y, ridge=1.0, solver="dual")
        kernel = _kernel(X, X)
        wanted = kernel @ np.linalg.solve(kernel + np.eye(n_rows), Y)
        assert oracle.relative_error(found.predict(X), wanted) < 1e-8


def test_few_rows_take_a_kernel_and_lose_nothing():
    """What auto takes for wide tokens agrees with the singular values of the features."""
    rng = np.random.default_rng(0)
    mixing = np.linalg.qr(rng.standard_normal((20, 20)))[0] * np.geomspace(1, 0.1, 20)
    X, Y = rng.standard_normal((150, 3, 20)) @ mixing, rng.standard_normal((150, 2))
    twice, zeros = X.copy(), X.copy()
    twice[1], zeros[:2] = X[0], 0.0
    for tokens, rank in ((X, 150), (twice, 149), (zeros, 148)):
        found, exact = pa.fit(tokens, Y), pa.fit(tokens, Y, solver="direct")
        assert found.solver == "dual"
        assert found.rank == exact.rank == rank
        assert found.outcome.name == exact.outcome.name == "minimum_norm"
        assert oracle.relative_error(found.coef, exact.coef) < 1e-10
        assert found.risk == pytest.approx(exact.risk, rel=1e-9, abs=1e-20)
