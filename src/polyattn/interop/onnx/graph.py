"""Graph: an ONNX graph in the making, operator by operator.

Values have names.  Nothing depends on how many sequences or tokens there are: lengths are values
of the graph, made of the shapes of its inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from polyattn.errors import OutOfRange

# The end of every axis, and its beginning when it is read backwards.
END, BEGINNING = np.iinfo(np.int64).max, np.iinfo(np.int64).min


class Graph:
    """Nodes and numbers of a graph, with one type for all that is computed.

    dtype : float64 or float32
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self.type = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.nodes: list[NodeProto] = []
        self.tensors: dict[tuple[Any, ...], TensorProto] = {}

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The value that an operator makes of others."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def numbers(self, values: NDArray | float) -> str:
        """Fixed numbers of the type of the graph."""
        given = np.asarray(values, dtype=np.float64)
        with np.errstate(over="ignore"):
            array = given.astype(self.dtype)
        if np.any(np.isinf(array) & np.isfinite(given)):
            raise OutOfRange(
                f"the layer has numbers up to {np.abs(given).max():.3g}, which {self.dtype.name} "
                'cannot hold; give dtype="float64", or bring tokens and layer to order one.'
            )
        return self._tensor(array)

    # Runtimes fuse a factor of one entry into a product of matrices nearby, as one of float32; a
    # number of the graph is such a factor, too, once the length of sequences is fixed.

    def scaled(self, value: str, factor: float, width: int) -> str:
        """A value (..., width) times a fixed number."""
        if width == 1:
            return self("MatMul", value, self.numbers(np.full((1, 1), factor)))
        return self("Mul", value, self.numbers(np.full(width, factor)))

    def divided(self, value: str, divisor: str, width: int) -> str:
        """A value (..., width) divided by one number of the graph."""
        if width == 1:
            factor = self("Reshape", self("Reciprocal", divisor), self.integers(1, 1))
            return self("MatMul", value, factor)
        return self("Div", value, self("Expand", divisor, self.integers(width)))

    def integers(self, *values: int) -> str:
        """A list of fixed integers."""
        return self._tensor(np.array(values, dtype=np.int64))

    def integer(self, value: int) -> str:
        """One fixed integer."""
        return self._tensor(np.array(value, dtype=np.int64))

    def doubles(self, values: NDArray | float) -> str:
        """Fixed numbers in float64, whatever the type of the graph."""
        return self._tensor(np.asarray(values, dtype=np.float64))

    def length(self, value: str, axis: int) -> str:
        """How long a value is along an axis."""
        return self("Gather", self("Shape", value), self.integer(axis))

    def places(self, length: str) -> str:
        """The integers 0, ..., length - 1."""
        return self("Range", self.integer(0), length, self.integer(1))

    def floating(self, value: str) -> str:
        """Integers, or numbers of another type, in the type of the graph."""
        return self("Cast", value, to=self.type)

    def part(self, value: str, axis: int, start: int, end: int = END, step: int = 1) -> str:
        """What stands at start <= place < end along an axis."""
        bounds = (self.integers(each) for each in (start, end, axis, step))
        return self("Slice", value, *bounds)

    def first(self, value: str, axis: int, length: str) -> str:
        """What stands at the first places, as many as a length of the graph says."""
        end = self("Unsqueeze", length, self.integers(0))
        return self("Slice", value, self.integers(0), end, self.integers(axis))

    def backwards(self, value: str, axis: int) -> str:
        """The value with an axis reversed."""
        return self.part(value, axis, -1, BEGINNING, -1)

    def later(self, value: str, back: int, axis: int, n_axes: int) -> str:
        """What stands ``back`` places before each one along an axis; zeros where there is none."""
        if back == 0:
            return value
        pads = [0] * (2 * n_axes)
        pads[axis] = back
        padded = self("Pad", value, self.integers(*pads), self.numbers(0.0))
        return self.first(padded, axis, self.length(value, axis))

    def with_constant(self, value: str) -> str:
        """Tokens (B, n, d) with a last coordinate that is always 1."""
        return self("Pad", value, self.integers(0, 0, 0, 0, 0, 1), self.numbers(1.0))

    def added(self, values: list[str]) -> str:
        """The sum of values."""
        total = values[0]
        for value in values[1:]:
            total = self("Add", total, value)
        return total

    def sum_over(self, value: str, axis: int, keepdims: int = 0) -> str:
        """The sum along an axis."""
        return self("ReduceSum", value, self.integers(axis), keepdims=keepdims)

    def initializers(self) -> list[TensorProto]:
        """All fixed numbers."""
        return list(self.tensors.values())

    def _tensor(self, array: NDArray) -> str:
        """The name of an array; equal ones are held once."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.tensors:
            name = f"number_{len(self.tensors)}"
            self.tensors[key] = numpy_helper.from_array(np.array(array, order="C"), name)
        return str(self.tensors[key].name)
