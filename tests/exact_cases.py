"""Small least-squares problems of every kind and scale, each drawn from its number."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

import polyattn as pa
from exact_least_squares import ExactProblem, design, numbers
from polyattn.sequences import MODES

#: Every way to a solution: the solvers by name, and the two statistics.
SOLVERS = ("auto", "primal", "dual", "direct", "iterative", "moments", "factor")


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
    def targets(self) -> NDArray | list[NDArray]:
        """The targets in the form that the mode asks for."""
        if self.mode == "last":
            return self.rows
        return np.split(self.rows, np.cumsum([len(x) for x in self.X])[:-1])

    @property
    def row_weights(self) -> NDArray[np.float64]:
        """The weight of each row, (rows,)."""
        given = np.ones(len(self.X)) if self.weights is None else self.weights
        return np.repeat(given, [1 if self.mode == "last" else len(x) for x in self.X])

    @cached_property
    def exact(self) -> ExactProblem:
        return ExactProblem.of(self.X, self.rows, self.mode, self.ridge, self.bias, self.weights)

    def fit(self, solver: str, **changes) -> pa.FitResult:
        """The fit by one of SOLVERS."""
        options = {"mode": self.mode, "bias": self.bias} | changes
        if solver in ("moments", "factor"):
            make = pa.Moments if solver == "moments" else pa.TriangularFactor
            statistics = make(self.X[0].shape[1], self.rows.shape[1], **options)
            statistics.update(self.X, self.targets, self.weights)
            return pa.fit(statistics=statistics, ridge=self.ridge)
        return pa.fit(
            self.X,
            self.targets,
            ridge=self.ridge,
            sample_weight=self.weights,
            solver=solver,
            **options,
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
