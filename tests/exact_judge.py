"""The judge of a fit whose exact optimum is known in rationals.

A fit may be away from the truth by a modest multiple of eps times the condition number that it
states, and may not state a condition number far above the true one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import polyattn as pa
from exact_cases import Case
from exact_least_squares import design, nearest, numbers
from planted import EPS
from polyattn.reference.features import norm_weights

#: Ways that see the features only through sums of their squares.
SQUARING = ("moments",)

#: What errors may be in units of eps * p * condition.
MODEST = 20.0

#: What the iterative solver promises of its gradient, in place of eps.
GRADIENT = 1e-12


@dataclass(frozen=True)
class Answer:
    """What a fit says of a case: outputs as rows, coefficients (or None), and its figures."""

    outputs: NDArray  # (rows, e)
    fresh: NDArray  # (fresh rows, e)
    coef: NDArray | None  # (e, q, d)
    risk: float
    rank: int | None
    condition: float | None
    solver: str
    said: str

    @classmethod
    def of(cls, result: pa.FitResult, case: Case) -> "Answer":
        outputs, fresh = (
            rows if case.mode == "last" else np.concatenate(rows)
            for rows in (result.predict(case.X), result.predict(case.fresh))
        )
        return cls(
            outputs, fresh, result.coef, result.risk, result.rank, result.condition,
            result.solver, str(result.outcome),
        )  # fmt: skip


@dataclass(frozen=True)
class Geometry:
    """Sizes of the features (p,), and condition numbers: after equilibration, and of the kernel."""

    columns: NDArray
    condition: float
    kernel_condition: float

    @classmethod
    def of(cls, case: Case, phi: NDArray, rank: int) -> "Geometry":
        """Of the weighted features phi (rows, p), together with the penalty."""
        n_features = phi.shape[1]
        stacked = np.concatenate([phi, np.sqrt(case.ridge) * np.eye(n_features)])
        norms = np.linalg.norm(stacked, axis=0)
        columns = np.where(norms > 0, norms, 1.0)
        kept = n_features if case.ridge else rank
        plain = _condition(stacked, kept)
        # A kernel of more rows than its rank has eigenvalues of zero, and then the ridge alone.
        surplus = len(phi) > rank and case.ridge > 0
        smallest = np.sqrt(case.ridge) / np.linalg.norm(stacked, 2) if surplus else 1.0
        return cls(columns, _condition(stacked / columns, kept), max(plain, 1.0 / smallest))

    @classmethod
    def of_case(cls, case: Case, rank: int) -> "Geometry":
        """The same from a case of known rank."""
        psi = numbers(design(case.X, case.mode, case.bias))
        width = case.X[0].shape[1] + case.bias
        return cls.of(case, np.sqrt(case.row_weights)[:, None] * psi / norm_weights(width), rank)


class Judge:
    """How far a fit is from the truth, in units of what rounding explains."""

    def __init__(self, case: Case) -> None:
        exact = case.exact
        self.case, self.rank = case, exact.rank
        self.s = norm_weights(exact.width)
        self.root = np.sqrt(case.row_weights)[:, None]
        self.phi = self.root * numbers(exact.psi) / self.s
        self.targets = self.root * case.rows
        self.predicted = self.root * numbers(exact.predicted)
        self.theta = numbers(exact.coef) * self.s[:, None]
        self.power, self.total = nearest(exact.residual_power), float(np.sum(self.root**2))
        geometry = Geometry.of(case, self.phi, self.rank)
        self.columns, self.condition = geometry.columns, geometry.condition
        self.geometry = geometry
        is_unique = case.ridge > 0 or self.rank == len(self.s)
        # Of least norm, in units of different size, only as far as residuals allow it.
        self.is_comparable = is_unique or not case.units
        self.units = self.columns if is_unique else np.full_like(self.columns, self.columns.max())

    def complaints(
        self, answer: Answer, solver: str, geometry: "Geometry | None" = None
    ) -> list[str]:
        """All that is wrong with a fit; empty if nothing is.

        ``geometry``: of the problem that was solved, if it is not the case itself.
        """
        level = self.level(answer, solver, geometry or self.geometry)
        if isinstance(level, str):
            return [level] if level else []
        if solver == "moments" and "second moments" in answer.said:
            return self._own_risk(answer)
        found = [
            self._predictions(answer, level),
            self._coefficients(answer, solver, level),
            self._risk(answer, solver, level),
            self._fresh(answer, solver, level),
            *self._rank(answer, solver),
        ]
        return [text for text in found if text]

    def level(self, answer: Answer, solver: str, geometry: "Geometry | None" = None) -> float | str:
        """The relative error of predictions that rounding explains; or a complaint, or ""."""
        geometry = geometry or self.geometry
        if solver == "iterative":
            if "approximation" in answer.said:
                return "".join(self._own_risk(answer))
            return MODEST * GRADIENT * max(self.condition, geometry.condition)
        stated = answer.condition
        if stated is None:
            return f"no condition number; true {geometry.condition:.1e}"
        by_kernel = answer.solver in ("dual", "direct")
        true = max(geometry.condition, geometry.kernel_condition if by_kernel else 0.0)
        if stated > 100 * len(self.s) * true:
            return f"states condition {stated:.1e}, true {true:.1e}"
        squared = solver in SQUARING and answer.solver != "direct"
        return MODEST * EPS * len(self.s) * stated ** (2 if squared else 1)

    def _predictions(self, answer: Answer, level: float) -> str:
        error = _length(self.root * answer.outputs - self.predicted)
        return _compare("predictions", error, self._output_limit(answer, level))

    def _output_limit(self, answer: Answer, level: float) -> float:
        size = _length(self.targets)
        limit = level * size
        if self.is_comparable or answer.coef is None:
            return limit
        # The norm is smallest in true units, of which large features magnify the rounding.
        return min(limit + 2 * EPS * len(self.s) * self._size(answer), max(limit, 1e-6 * size))

    def _size(self, answer: Answer) -> float:
        """What is added up in the outputs of coefficients: ||D theta||."""
        found = answer.coef.reshape(len(answer.coef), -1).T * self.s[:, None]
        return _length(self.columns[:, None] * found)

    def coefficient_limit(self, solver: str, level: float) -> float:
        """eps kappa (||D theta|| + kappa ||r||), as for least squares; or by normal equations."""
        size = _length(self.units[:, None] * self.theta)
        residual = np.sqrt(self.power + self.case.ridge * _length(self.theta) ** 2)
        kappa = self.condition
        if solver == "iterative":
            return level * kappa * (size + _length(self.targets))
        if solver in SQUARING:
            return level * (size + _length(self.targets))
        return level * (size + kappa * residual)

    def _coefficients(self, answer: Answer, solver: str, level: float) -> str:
        if answer.coef is None or not self.is_comparable:
            return ""
        found = answer.coef.reshape(len(answer.coef), -1).T * self.s[:, None]
        error = _length(self.units[:, None] * (found - self.theta))
        return _compare("coefficients", error, self.coefficient_limit(solver, level))

    def _fresh(self, answer: Answer, solver: str, level: float) -> str:
        if not self.is_comparable:
            return ""
        case = self.case
        psi = design(case.fresh, case.mode, case.bias)
        reach = np.linalg.norm(numbers(psi) / self.s / self.units, axis=1)
        limit = reach * self.coefficient_limit(solver, level)
        error = np.linalg.norm(answer.fresh - numbers(psi * case.exact.coef), axis=1)
        worst = int(np.argmax(error - limit))
        return _compare("fresh outputs", float(error[worst]), float(limit[worst]))

    def _risk(self, answer: Answer, solver: str, level: float) -> str:
        error = abs(answer.risk * self.total - self.power)
        outputs = self._output_limit(answer, level)
        limit = outputs**2 + 2 * outputs * np.sqrt(self.power)
        if solver in SQUARING:
            # Sums of squares cancel.
            limit += level * _length(self.targets) ** 2
        return _compare("risk", error, limit + MODEST * EPS * self.power)

    def _rank(self, answer: Answer, solver: str) -> list[str]:
        if self.case.ridge or solver == "iterative" or self.condition > 1e9:
            return []
        return [] if answer.rank == self.rank else [f"rank {answer.rank}, true {self.rank}"]

    def _own_risk(self, answer: Answer) -> list[str]:
        """An approximation states the risk that it has."""
        outputs = self.root * answer.outputs
        slack = _length(outputs) ** 2 + _length(self.targets) ** 2
        # Moments know it only as a difference of squares.
        slack *= (answer.condition or 1.0) ** 2
        error = abs(answer.risk * self.total - _length(self.targets - outputs) ** 2)
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
