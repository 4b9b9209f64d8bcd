"""Linear regression in context: examples of a linear function, then a question."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.data.one_step import OneStep, require_covariance
from polyattn.errors import InvalidInput, require_flag, require_integer, require_number
from polyattn.numerics.arrays import real_array, require_finite
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.quoting import counted


@dataclass(frozen=True, eq=False)
class InContextTask:
    """Prompts X (N, n + 1, d + 1), targets Y (N, 1), and the best step for such data.

    ``weights`` (N, d): the function w of each prompt.
    ``tasks`` (k, d): the functions that prompts choose from; None where each has its own.
    """

    X: NDArray[np.float64] = field(repr=False)
    Y: NDArray[np.float64] = field(repr=False)
    optimum: OneStep
    weights: NDArray[np.float64] = field(repr=False)
    tasks: NDArray[np.float64] | None = field(default=None, repr=False)


def in_context_regression(
    n_sequences: int,
    n_examples: int,
    covariance: ArrayLike,
    noise: float = 0.0,
    random_state: RandomState = 0,
    *,
    tasks: int | ArrayLike | None = None,
    task_covariance: ArrayLike | None = None,
    noisy_target: bool = False,
    summarised: bool = False,
) -> InContextTask:
    """Sequences of n examples (x_i, y_i) of a linear function, then a question (x, 0).

        X = [ x_1  y_1 ]
            [   ...    ]        x_i, x ~ N(0, covariance),      w ~ N(0, I) for each sequence,
            [ x_n  y_n ]        y_i = <w, x_i> + noise * N(0, 1)
            [ x    0   ]

    The target is <w, x>, which no layer knows: what it can know of w is in the examples.

    Parameters
    ----------
    n_sequences, n_examples : int
    covariance : array (d, d), symmetric and positive definite
    noise : float
        Standard deviation of the noise on the targets y_i of the examples, in their units; the
        target Y has none, unless ``noisy_target``.
    random_state : int, Generator or None
        A generator goes on where it was, so that long streams are drawn in parts.
    tasks : int or array (k, d), optional
        The only w there are, each sequence with one of them at random: so many are drawn, or
        these are taken.  By default every sequence has a w of its own.
    task_covariance : array (d, d), optional
        That of w where it is drawn; the identity by default.
    noisy_target : bool
        Whether the target has the noise of labels, too.
    summarised : bool
        Each prompt as two tokens, the question and one example that has the means of y_i x_i and
        y_i^2 of n examples.  Layers that see nothing else (without bias and query, with the mean,
        and the label as value) cannot tell them from whole prompts, and each takes 2 d numbers or
        so, not n d.

    Returns
    -------
    InContextTask
        X (n_sequences, n_examples + 1, d + 1), Y (n_sequences, 1), the tasks, and ``optimum``, the
        best step of gradient descent: where w and -w are equally likely, as for tasks that are not
        given as k ones, the layer of least expected error over any number of heads.
    """
    n_sequences = require_integer("n_sequences", n_sequences)
    noisy = require_flag("noisy_target", noisy_target)
    S = require_covariance("covariance", covariance)
    d = len(S)
    if task_covariance is not None:
        task_covariance = require_covariance("task_covariance", task_covariance, False, d)
    rng = require_generator(random_state)
    known = _known_tasks(tasks, d, task_covariance, rng)
    moment = task_covariance if known is None else known.T @ known / len(known)
    optimum = OneStep.of(S, n_examples, noise, moment)
    if require_flag("summarised", summarised):
        weights = _of_each_prompt(n_sequences, known, d, task_covariance, rng)
        X, labels = _summarised_prompts(weights, optimum, rng)
    else:
        X = _inputs(n_sequences, optimum, rng)
        weights = _of_each_prompt(n_sequences, known, d, task_covariance, rng)
        labels = _label(X, weights, optimum, rng)
    if noisy:
        labels = labels + optimum.noise * rng.standard_normal(labels.shape)
    return InContextTask(X, labels, optimum, weights, known)


def proportional_regression(
    n_dims: int,
    tau: float,
    alpha: float,
    kappa: float | None = None,
    rho: float = 0.01,
    random_state: RandomState = 0,
    *,
    task_covariance: ArrayLike | None = None,
    summarised: bool = True,
) -> InContextTask:
    """Prompts in proportion to d, the scaling in which learning curves have a limit [letey2025].

    n = tau d^2 prompts of l = alpha d examples each, of k = kappa d tasks; inputs are
    N(0, I/d), labels and targets have noise of variance rho, tasks are N(0, task_covariance).

    Parameters
    ----------
    n_dims : int
        d, the coordinates of an input.
    tau, alpha, kappa : float
        Prompts, examples and tasks, in units of d^2, d and d; ``kappa=None``: a fresh task for
        each prompt.
    rho : float
        Variance of the noise on labels and target.
    random_state, task_covariance, summarised
        As for ``in_context_regression``; of whole prompts d = 200 would have 26 GB.
    """
    d = require_integer("n_dims", n_dims)
    rho = require_number("rho", rho)
    sizes = {"tau": (tau, d * d), "alpha": (alpha, d)}
    if kappa is not None:
        sizes["kappa"] = (kappa, d)
    counts = {}
    for name, (share, unit) in sizes.items():
        # The nearest: 0.29 * 100 is a little less than 29.
        counts[name] = round(require_number(name, share) * unit)
        if not counts[name]:
            raise InvalidInput(f"{name} must be at least 1/{unit} for n_dims={d}; got {share!r}.")
    return in_context_regression(
        counts["tau"], counts["alpha"], np.eye(d) / d, float(np.sqrt(rho)), random_state,
        tasks=counts.get("kappa"), task_covariance=task_covariance, noisy_target=True,
        summarised=summarised,
    )  # fmt: skip


def _known_tasks(
    tasks: int | ArrayLike | None, d: int, covariance: NDArray | None, rng: np.random.Generator
) -> NDArray[np.float64] | None:
    """All tasks (k, d) that prompts choose from; None where each has its own."""
    if tasks is None:
        return None
    if isinstance(tasks, int | np.integer) and not isinstance(tasks, bool):
        return _drawn_tasks(require_integer("tasks", tasks), d, covariance, rng)
    given = real_array(tasks, "tasks").astype(np.float64)
    if given.ndim != 2 or given.shape[1] != d or not len(given):
        raise InvalidInput(
            f"tasks must be a number of tasks, or an array (k, {d}) for inputs of "
            f"{counted(d, 'coordinate')}; got shape {given.shape}."
        )
    require_finite(given, "tasks")
    if covariance is not None:
        raise InvalidInput("task_covariance is that of tasks to be drawn; these are given.")
    return given


def _drawn_tasks(
    count: int, d: int, covariance: NDArray | None, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Tasks (count, d) with that covariance, which may have zero eigenvalues."""
    drawn = rng.standard_normal((count, d))
    if covariance is None:
        return drawn
    powers, axes = np.linalg.eigh(covariance)
    return np.asarray((drawn * np.sqrt(np.maximum(powers, 0.0))) @ axes.T, dtype=np.float64)


def _of_each_prompt(
    count: int, known: NDArray | None, d: int, covariance: NDArray | None, rng: np.random.Generator
) -> NDArray[np.float64]:
    """The task of each prompt (count, d): one of those known, or its own."""
    if known is None:
        return _drawn_tasks(count, d, covariance, rng)
    return np.asarray(known[rng.integers(len(known), size=count)], dtype=np.float64)


def _inputs(count: int, of: OneStep, rng: np.random.Generator) -> NDArray[np.float64]:
    """Prompts (count, n + 1, d + 1) without labels."""
    X = np.zeros((count, of.n_examples + 1, of.n_dims + 1))
    root = np.linalg.cholesky(of.covariance)
    X[..., :-1] = rng.standard_normal((count, of.n_examples + 1, of.n_dims)) @ root.T
    return X


def _label(
    X: NDArray, weights: NDArray, of: OneStep, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Write the labels of examples into prompts; returns the targets (count, 1) without noise."""
    labels = (X[..., :-1] @ weights[..., None])[..., 0]
    X[:, :-1, -1] = labels[:, :-1] + of.noise * rng.standard_normal((len(X), of.n_examples))
    return labels[:, -1:].copy()


def _summarised_prompts(
    weights: NDArray, of: OneStep, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Prompts (count, 2, d + 1) with the same means, and their targets without noise.

    x_i = L z_i with L L^T = S, and v = L^T w: the labels see z_i only along v.  Given the labels,
    sum_i y_i z_i across v is a Gaussian vector of variance sum_i y_i^2.
    """
    n, (count, d) = of.n_examples, weights.shape
    root = np.linalg.cholesky(of.covariance)
    seen = weights @ root
    size = np.linalg.norm(seen, axis=1, keepdims=True)
    along = np.divide(seen, size, out=np.zeros_like(seen), where=size > 0)
    # Of n inputs along v and n errors: the length of the one, and the other along it and across.
    length, shared = np.sqrt(rng.chisquare(n, (count, 1))), rng.standard_normal((count, 1))
    rest = rng.chisquare(n - 1, (count, 1)) if n > 1 else np.zeros((count, 1))
    drawn = size * length + of.noise * shared
    label = np.hypot(drawn, of.noise * np.sqrt(rest)) / np.sqrt(n)
    across = rng.standard_normal((count, d)) * label / np.sqrt(n)
    # A task that is zero has no direction, and nothing is taken out.
    taken = np.sum(across * along, axis=1, keepdims=True)
    mean = across + (length * drawn / n - taken) * along
    X = np.zeros((count, 2, d + 1))
    X[:, 0, d:] = label
    X[:, 0, :d] = np.divide(mean, label, out=np.zeros_like(mean), where=label > 0) @ root.T
    X[:, 1, :d] = rng.standard_normal((count, d)) @ root.T
    return X, np.sum(X[:, 1, :d] * weights, axis=1, keepdims=True)
