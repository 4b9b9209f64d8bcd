"""What forms see of tokens, as operators: coordinates, matrices and the maps of ``pa.maps``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.form import ready_maps
from polyattn.form.layout import Layout
from polyattn.form.token_maps import TokenMap, coordinates_of, same_map
from polyattn.interop.onnx.graph import Graph


def seen_tokens(
    graph: Graph, layout: Layout, names: tuple[str, ...], tokens: str, n_dims: int
) -> dict[str, str]:
    """Queries, keys or values (B, n, r) of tokens (B, n, d), each with the constant of ``bias``.

    names : of query, key and value those that are made of these tokens
    """
    given = [getattr(layout.form, name) for name in names]
    found: list[str] = []
    for i, name in enumerate(names):
        # Equal maps are applied once.
        first = next(j for j in range(i + 1) if same_map(given[j], given[i]))
        if first < i:
            found.append(found[first])
            continue
        seen = mapped(graph, given[i], tokens, n_dims, name)
        found.append(graph.with_constant(seen) if layout.form.bias else seen)
    return dict(zip(names, found, strict=True))


def mapped(graph: Graph, given: TokenMap, tokens: str, n_dims: int, name: str) -> str:
    """What a map makes of tokens (B, n, d): (B, n, r)."""
    chosen = coordinates_of(given, n_dims, name)
    if chosen == tuple(range(n_dims)):
        return tokens
    if chosen is not None:
        return graph("Gather", tokens, graph.integers(*chosen), axis=2)
    if isinstance(given, np.ndarray):
        return graph("MatMul", tokens, graph.numbers(given))
    make = READY.get(type(given))
    if make is None:
        raise InvalidInput(
            f"{name} of the form is a function of numpy arrays, {getattr(given, '__name__', given)}"
            ", which ONNX cannot hold: to_onnx takes coordinates, matrices and the maps of pa.maps."
        )
    return make(graph, given, tokens, n_dims)


def _polynomial(graph: Graph, given: ready_maps.Polynomial, tokens: str, n_dims: int) -> str:
    # Ones for every token: the monomial of degree zero.
    some = graph.part(tokens, 2, 0, 1)
    products = graph("Add", graph("Mul", some, graph.numbers(0.0)), graph.numbers(1.0))
    found = [products]
    for before, factor in ready_maps.monomials(n_dims, given.degree, given.include_lower):
        lower = graph("Gather", products, graph.integers(*before.tolist()), axis=2)
        factors = graph("Gather", tokens, graph.integers(*factor.tolist()), axis=2)
        products = graph("Mul", lower, factors)
        found.append(products)
    return graph("Concat", *found, axis=2) if given.include_lower else products


def _elu1(graph: Graph, _: ready_maps.Elu1, tokens: str, __: int) -> str:
    zero, one = graph.numbers(0.0), graph.numbers(1.0)
    below = graph("Exp", graph("Min", tokens, zero))
    return graph("Where", graph("Greater", tokens, zero), graph("Add", tokens, one), below)


def _random_fourier(graph: Graph, given: ready_maps.RandomFourier, tokens: str, n_dims: int) -> str:
    frequencies, phases = ready_maps.waves(n_dims, given.n_features, given.random_state)
    angles = graph("MatMul", tokens, graph.numbers(frequencies / given.scale))
    # As a sine, since some runtimes have no cosine of float64.
    waves = graph("Sin", graph("Add", angles, graph.numbers(phases + np.pi / 2)))
    return graph.scaled(waves, (2.0 / given.n_features) ** 0.5, given.n_features)


def _hedgehog(graph: Graph, given: ready_maps.Hedgehog, tokens: str, _: int) -> str:
    logits = tokens
    if given.weights is not None:
        logits = graph("MatMul", tokens, graph.numbers(given.weights))
    both = graph("Concat", logits, graph("Neg", logits), axis=2)
    return graph("Softmax", both, axis=2)


def _normalised(graph: Graph, _: ready_maps.Normalised, tokens: str, __: int) -> str:
    # The largest coordinate first: squares of the numbers as they are could overflow.
    largest = graph("ReduceMax", graph("Abs", tokens), axes=[2], keepdims=1)
    scaled = graph("Div", tokens, _or_one(graph, largest))
    squares = graph.sum_over(graph("Mul", scaled, scaled), 2, keepdims=1)
    return graph("Div", scaled, _or_one(graph, graph("Sqrt", squares)))


def _or_one(graph: Graph, sizes: str) -> str:
    """Sizes, and one where they are zero."""
    is_zero = graph("Equal", sizes, graph.numbers(0.0))
    return graph("Where", is_zero, graph.numbers(1.0), sizes)


READY: dict[type, Callable[..., str]] = {
    ready_maps.Polynomial: _polynomial,
    ready_maps.Elu1: _elu1,
    ready_maps.RandomFourier: _random_fourier,
    ready_maps.Hedgehog: _hedgehog,
    ready_maps.Normalised: _normalised,
}
