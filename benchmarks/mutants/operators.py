"""The changes that are tried: those of cosmic-ray that a test could miss, and two more.

A replacement such as + by >> raises at the first call and shows nothing.  What is kept is what a
tired reader would overlook: a sign, a bound that is off by one, a comparison at its edge, a
tolerance a thousand times too large.
"""

from collections.abc import Iterator
from functools import cache

import parso.python.tree
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.operators.provider import OperatorProvider

_ARITHMETIC = (
    ("Add", "Sub"),
    ("Sub", "Add"),
    ("Mul", "Div"),
    ("Mul", "Add"),
    ("Div", "Mul"),
    ("FloorDiv", "Mul"),
    ("Mod", "FloorDiv"),
    ("Pow", "Mul"),
    ("LShift", "RShift"),
    ("RShift", "LShift"),
    ("BitOr", "BitAnd"),
    ("BitAnd", "BitOr"),
    ("BitXor", "BitOr"),
)
_COMPARISONS = (
    ("Eq", "NotEq"),
    ("NotEq", "Eq"),
    ("Lt", "LtE"),
    ("Lt", "GtE"),
    ("LtE", "Lt"),
    ("LtE", "Gt"),
    ("Gt", "GtE"),
    ("Gt", "LtE"),
    ("GtE", "Gt"),
    ("GtE", "Lt"),
    ("Is", "IsNot"),
    ("IsNot", "Is"),
)
_OTHERS = (
    "AddNot",
    "NumberReplacer",
    "ReplaceAndWithOr",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceUnaryOperator_Delete_Invert",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "ZeroIterationForLoop",
)
_AUGMENTED = {
    "+=": "-=",
    "-=": "+=",
    "*=": "/=",
    "/=": "*=",
    "//=": "*=",
    "|=": "&=",
    "&=": "|=",
}

Position = tuple[tuple[int, int], tuple[int, int]]


class ReplaceAugmentedAssignment(Operator):
    """Replaces += by -=, *= by /= and so on."""

    def mutation_positions(self, node: parso.tree.NodeOrLeaf) -> Iterator[Position]:
        if isinstance(node, parso.python.tree.Operator) and node.value in _AUGMENTED:
            yield (node.start_pos, node.end_pos)

    def mutate(self, node: parso.tree.Leaf, index: int) -> parso.tree.Leaf:  # noqa: ARG002
        node.value = _AUGMENTED[node.value]
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("x += y", "x -= y"),)


class ScaleNumber(Operator):
    """Makes a number with an exponent, mostly a tolerance, a thousand times larger or smaller."""

    factors = (1e3, 1e-3)

    def mutation_positions(self, node: parso.tree.NodeOrLeaf) -> Iterator[Position]:
        if isinstance(node, parso.python.tree.Number) and "e" in node.value.lower():
            for _ in self.factors if not node.value.lower().startswith("0x") else ():
                yield (node.start_pos, node.end_pos)

    def mutate(self, node: parso.tree.Leaf, index: int) -> parso.tree.Leaf:
        value = float(node.value) * self.factors[index]
        return parso.python.tree.Number(f"{value!r}", node.start_pos, prefix=node.prefix)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("x = 1e-9", "x = 1e-06"), Example("x = 1e-9", "x = 1e-12", 1))


@cache
def operators() -> dict[str, Operator]:
    """All operators by name."""
    provider = OperatorProvider()
    names = [f"ReplaceBinaryOperator_{a}_{b}" for a, b in _ARITHMETIC]
    names += [f"ReplaceComparisonOperator_{a}_{b}" for a, b in _COMPARISONS]
    chosen = {name: provider[name]() for name in [*names, *_OTHERS]}
    own = (ReplaceAugmentedAssignment, ScaleNumber)
    return chosen | {operator.__name__: operator() for operator in own}
