"""Small least-squares problems of every kind and scale, and the judge of a fit to them.

A case is drawn from its number.  The truth is rational (``exact_least_squares``); a fit may be
away from it by a modest multiple of eps times the condition number that it states.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

import polyattn as pa
from exact_least_squares import ExactProblem, design, nearest, numbers
from planted import EPS
from polyattn.reference.features import norm_weights
from polyattn.sequences import MODES

#: Every way to a solution: the solvers by name, and the two statistics.
SOLVERS = ("auto", "primal", "dual", "direct", "iterative", "moments", "factor")

#: Ways that see the features only through sums of their squares, or through a kernel.
SQUARING = ("dual", "moments")

#: Errors in units of eps * p * condition; the largest of 35,000 fits was 14.
MODEST = 60.0

#: What the iterative solver promises of its gradient, in place of eps.
GRADIENT = 1e-12


@dataclass(frozen=True)
class Case:
    """One problem, as given to ``fit``."""

    number: int
    X: list[NDArray]
    rows: NDArray  # (rows, e)
    mode: str
    bias: bool
    ridge: float
    weights: NDArray | None
    fresh: list[NDArray]
    units: bool  # whether coordinates differ in size

    @property
    def Y(self) -> NDArray | list[NDArray]:
        """The targets in the form that the mode asks for."""
        if self.mode == "last":
            return self.rows
        return np.split(self.rows, np.cumsum([len(x) for x in self.X])[:-1])

    @cached_property
    def exact(self) -> ExactProblem:
        return ExactProblem.of(self.X, self.rows, self.mode, self.ridge, self.bias, self.weights)

    def fit(self, solver: str, **changes) -> pa.FitResult:
        """The fit by one of SOLVERS."""
        options = {"mode": self.mode, "bias": self.bias} | changes
        if solver in ("moments", "factor"):
            make = pa.Moments if solver == "moments" else pa.TriangularFactor
            statistics = make(self.X[0].shape[1], self.rows.shape[1], **options)
            statistics.update(self.X, self.Y, self.weights)
            return pa.fit(statistics=statistics, ridge=self.ridge)
        return pa.fit(
            self.X, self.Y, ridge=self.ridge, sample_weight=self.weights, solver=solver, **options
        )


def draw(number: int) -> Case:
    """The case of this number."""
    rng = np.random.default_rng(number)
    mode, bias = MODES[number % 3], bool(rng.random() < 0.25)
    n_dims = int(rng.choice([1, 2, 3], p=[0.15, 0.5, 0.35]))
    n_dims -= bias and n_dims == 3
    width = n_dims + bias
    p = width * width * (width + 1) // 2
    ragged = rng.random() < 0.3
    lengths = rng.integers(1, 6, size=int(rng.integers(1, 2 * p + 6)))
    if not ragged:
        lengths[:] = lengths[0]
    kind = rng.choice(["normal", "integer", "flat", "repeated", "zero", "one_hot"],
                      p=[0.55, 0.15, 0.1, 0.1, 0.05, 0.05])  # fmt: skip
    X = [_tokens(kind, n, n_dims, rng) for n in lengths]
    if kind == "repeated":
        X = X[: max(1, len(X) // 2)] * 2
    generic = kind == "normal"
    scale, units = _scales(n_dims, generic, bias, rng)
    X = [x * scale for x in X]
    fresh = [_tokens("normal", 4, n_dims, rng) * scale for _ in range(3)]
    n_rows = len(X) if mode == "last" else sum(map(len, X))
    rows = rng.standard_normal((n_rows, int(rng.integers(1, 3)))) * _size(12, rng)
    weights = _weights(len(X), rng)
    return Case(number, X, rows, mode, bias, _ridge(X, mode, bias, weights, rng), weights,
                fresh, units)  # fmt: skip


def _tokens(kind: str, n: int, n_dims: int, rng: np.random.Generator) -> NDArray:
    if kind == "normal":
        return rng.standard_normal((n, n_dims))
    if kind == "one_hot":
        return np.eye(n_dims)[rng.integers(n_dims, size=n)]
    tokens = rng.integers(-9, 10, size=(n, n_dims)).astype(np.float64)
    if kind == "flat":
        tokens[:, -1] = tokens[:, :-1].sum(axis=1)
    if kind == "zero":
        tokens[:, -1] = 0.0
    return tokens


def _size(digits: int, rng: np.random.Generator, exact: bool = False) -> float:
    """1, a power of two, or a power of ten of at most so many digits."""
    choice = rng.integers(4)
    if choice <= 1:
        return 1.0
    if choice == 2 or exact:
        return float(2.0 ** rng.integers(-3 * digits, 3 * digits + 1))
    return float(10.0 ** rng.uniform(-digits, digits))


def _scales(
    n_dims: int, generic: bool, bias: bool, rng: np.random.Generator
) -> tuple[NDArray, bool]:
    """Factors of the coordinates, and whether they differ.

    Dependent features stay exactly dependent only under powers of two.
    """
    scale = np.full(n_dims, _size(4 if bias else 12, rng, exact=not generic))
    own = rng.random() < 0.35
    if own:
        scale[int(rng.integers(n_dims))] *= _size(4, rng, exact=not generic)
    return scale, bool(own or (bias and scale[0] != 1.0))


def _weights(n: int, rng: np.random.Generator) -> NDArray | None:
    choice = rng.integers(4)
    if choice <= 1:
        return None
    weights = rng.uniform(0.5, 2.0, n) if choice == 2 else rng.integers(0, 3, n).astype(float)
    weights[0] = 1.0
    return weights * _size(40, rng)


def _ridge(
    X: list[NDArray], mode: str, bias: bool, weights: NDArray | None, rng: np.random.Generator
) -> float:
    """0 for half of the cases, else a share of the mean eigenvalue of the moments."""
    share = float(10.0 ** rng.uniform(-8, 2))
    if rng.random() < 0.5:
        return 0.0
    psi = numbers(design(X, mode, bias))
    return share * float(np.mean(psi**2)) * (1.0 if weights is None else float(weights.max()))


# The judge ----------------------------------------------------------------------------------


class Judge:
    """How far a fit is from the truth, in units of what rounding explains."""

    def __init__(self, case: Case) -> None:
        exact = case.exact
        self.case, self.rank = case, exact.rank
        self.s = norm_weights(exact.width)
        lengths = [1 if case.mode == "last" else len(x) for x in case.X]
        given = np.ones(len(case.X)) if case.weights is None else case.weights
        self.root = np.sqrt(np.repeat(given, lengths))[:, None]
        self.phi = self.root * numbers(exact.psi) / self.s
        self.targets = self.root * case.rows
        self.predicted = self.root * numbers(exact.predicted)
        self.theta = numbers(exact.coef) * self.s[:, None]
        self.power, self.total = nearest(exact.residual_power), float(np.sum(self.root**2))
        stacked = np.concatenate([self.phi, np.sqrt(case.ridge) * np.eye(len(self.s))])
        norms = np.linalg.norm(stacked, axis=0)
        self.columns = np.where(norms > 0, norms, 1.0)
        kept = len(self.s) if case.ridge else self.rank
        self.plain_condition = _condition(stacked, kept)
        self.condition = _condition(stacked / self.columns, kept)
        # A kernel of more rows than its rank has eigenvalues of zero, and then the ridge alone.
        surplus = len(self.phi) > self.rank and case.ridge > 0
        smallest = np.sqrt(case.ridge) / np.linalg.norm(stacked, 2) if surplus else 1.0
        self.kernel_condition = max(self.plain_condition, 1.0 / smallest)

    @property
    def is_unique(self) -> bool:
        """Whether coefficients may be compared one by one."""
        return self.case.ridge > 0 or self.rank == len(self.s)

    def complaints(self, result: pa.FitResult, solver: str) -> list[str]:
        """All that is wrong with a fit; empty if nothing is."""
        level = self.level(result, solver)
        if isinstance(level, str):
            return [level] if level else []
        said = str(result.outcome)
        if solver == "moments" and "second moments" in said:
            return self._own_risk(result)
        found = [
            self._predictions(result, level),
            self._coefficients(result, solver, level),
            self._risk(result, solver, level),
            self._fresh(result, solver, level),
            *self._rank(result, solver),
        ]
        return [text for text in found if text]

    def level(self, result: pa.FitResult, solver: str) -> float | str:
        """The relative error of predictions that rounding explains; or a complaint, or ""."""
        if solver == "iterative":
            if "approximation" in str(result.outcome):
                return "".join(self._own_risk(result))
            return MODEST * GRADIENT * self.condition
        stated = result.condition
        if stated is None:
            return f"no condition number; true {self.condition:.1e}"
        by_kernel = solver == "dual" or len(self.phi) < len(self.s)
        true = max(self.condition, self.kernel_condition if by_kernel else 0.0)
        if stated > 100 * len(self.s) * true:
            return f"states condition {stated:.1e}, true {true:.1e}"
        squared = solver in SQUARING and result.solver != "direct"
        return MODEST * EPS * len(self.s) * stated ** (2 if squared else 1)

    def _theta(self, result: pa.FitResult) -> NDArray:
        return result.coef.reshape(len(result.coef), -1).T * self.s[:, None]

    def _outputs(self, result: pa.FitResult) -> NDArray:
        outputs = result.predict(self.case.X)
        return self.root * (outputs if self.case.mode == "last" else np.concatenate(outputs))

    def _predictions(self, result: pa.FitResult, level: float) -> str:
        error = _length(self._outputs(result) - self.predicted)
        return _compare("predictions", error, level * _length(self.targets))

    def coefficient_limit(self, solver: str, level: float) -> float:
        """eps kappa (||D theta|| + kappa ||r||), as for least squares; or by normal equations."""
        own = self.columns if self.is_unique else np.full(len(self.s), self.columns.max())
        size = _length(own[:, None] * self.theta)
        residual = np.sqrt(self.power + self.case.ridge * _length(self.theta) ** 2)
        kappa = self.condition
        if solver == "iterative":
            return level * kappa * (size + _length(self.targets))
        if solver in SQUARING:
            return level * (size + _length(self.targets))
        return level * (size + kappa * residual)

    def _coefficients(self, result: pa.FitResult, solver: str, level: float) -> str:
        if not self.is_unique and self.case.units:
            return ""  # of least norm only as far as residuals allow it
        own = self.columns if self.is_unique else np.full(len(self.s), self.columns.max())
        error = _length(own[:, None] * (self._theta(result) - self.theta))
        return _compare("coefficients", error, self.coefficient_limit(solver, level))

    def _fresh(self, result: pa.FitResult, solver: str, level: float) -> str:
        if not self.is_unique and self.case.units:
            return ""
        case = self.case
        psi = design(case.fresh, case.mode, case.bias)
        outputs = result.predict(case.fresh)
        outputs = outputs if case.mode == "last" else np.concatenate(outputs)
        own = self.columns if self.is_unique else np.full(len(self.s), self.columns.max())
        reach = np.linalg.norm(numbers(psi) / self.s / own, axis=1)
        limit = reach * self.coefficient_limit(solver, level)
        error = np.linalg.norm(outputs - numbers(psi * case.exact.coef), axis=1)
        worst = int(np.argmax(error - limit))
        return _compare("fresh outputs", float(error[worst]), float(limit[worst]))

    def _risk(self, result: pa.FitResult, solver: str, level: float) -> str:
        error = abs(result.risk * self.total - self.power)
        size = _length(self.targets)
        # Squared errors are flat at the optimum; sums of squares cancel to eps ||y||^2.
        limit = (level * size) ** 2 + 2 * level * size * np.sqrt(self.power)
        if solver in SQUARING:
            limit += level * size**2
        return _compare("risk", error, limit + MODEST * EPS * self.power)

    def _rank(self, result: pa.FitResult, solver: str) -> list[str]:
        if self.case.ridge or solver == "iterative" or self.condition > 1e9:
            return []
        return [] if result.rank == self.rank else [f"rank {result.rank}, true {self.rank}"]

    def _own_risk(self, result: pa.FitResult) -> list[str]:
        """An approximation states the risk that it has."""
        power = _length(self.targets - self._outputs(result)) ** 2
        slack = (
            _length(self.columns[:, None] * self._theta(result)) ** 2 + _length(self.targets) ** 2
        )
        error = abs(result.risk * self.total - power)
        text = _compare("own risk", error, MODEST * EPS * len(self.s) * slack)
        return [text] if text else []


def _condition(matrix: NDArray, rank: int) -> float:
    sigma = np.linalg.svd(matrix, compute_uv=False)
    smallest = max(sigma[rank - 1], EPS * sigma[0]) if rank else 0.0
    return float(sigma[0] / smallest) if smallest else 1.0


def _length(array: NDArray) -> float:
    return float(np.linalg.norm(array))


def _compare(what: str, error: float, limit: float) -> str:
    limit = max(limit, float(np.finfo(np.float64).tiny))
    return "" if error <= limit else f"{what}: off by {error:.1e}, allowed {limit:.1e}"
