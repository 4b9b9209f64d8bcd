"""to_onnx: a layer as an ONNX model, checked."""

from __future__ import annotations

import os

import onnx
from onnx import ModelProto, ValueInfoProto, helper

from polyattn._version import __version__
from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.files.atomic import require_writable, write_atomically
from polyattn.interop.onnx.graph import Graph
from polyattn.interop.onnx.linear_attention import linear_attention
from polyattn.interop.onnx.softmax_attention import softmax_attention
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.quoting import readable_bytes

# Operators and files as runtimes of 2022 and later read them.
OPSET, IR_VERSION = 17, 8

# No message of protocol buffers is longer.
MOST_BYTES = 2**31 - 1


def to_onnx(
    layer: LinearAttention | SoftmaxAttention,
    path: str | os.PathLike[str] | None = None,
    dtype: str = "float64",
) -> ModelProto:
    """The layer as a model: see ``polyattn.interop.to_onnx``."""
    if type(layer) not in (LinearAttention, SoftmaxAttention):
        raise InvalidType(
            "to_onnx takes a LinearAttention or a SoftmaxAttention; got "
            f"{type(layer).__name__}. A fit result and an estimator hold theirs as .layer and "
            ".layer_."
        )
    graph = Graph(require_choice("dtype", dtype, ("float64", "float32")))
    if path is not None:
        require_writable(path)
    _require_size(layer, graph.dtype.itemsize)
    inputs = [_declared(graph, "X", "tokens", layer.n_dims)]
    if isinstance(layer, LinearAttention):
        context = None
        if layer.n_context_dims is not None:
            # In mode causal both are of one length.
            tokens = "tokens" if layer.mode == "causal" else "context_tokens"
            inputs.append(_declared(graph, "context", tokens, layer.n_context_dims))
            context = "context"
        outputs = linear_attention(graph, layer, "X", context)
    else:
        outputs = softmax_attention(graph, layer, "X")
    model = _model(graph, layer, inputs, outputs)
    if path is not None:
        content = model.SerializeToString()
        write_atomically(path, lambda file: file.write(content))
    return model


def _model(
    graph: Graph,
    layer: LinearAttention | SoftmaxAttention,
    inputs: list[ValueInfoProto],
    outputs: str,
) -> ModelProto:
    """The whole model, whose output is Y."""
    is_last = layer.mode == "last"
    last = graph("Squeeze", outputs, graph.integers(1)) if is_last else outputs
    graph.nodes.append(helper.make_node("Identity", [last], ["Y"]))
    shape: list[str | int] = ["batch", layer.n_outputs]
    if not is_last:
        shape.insert(1, "tokens")
    made = helper.make_graph(
        graph.nodes, layer.kind, inputs,
        [helper.make_tensor_value_info("Y", graph.type, shape)], graph.initializers(),
        doc_string=layer.describe().about,
    )  # fmt: skip
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION,
        producer_name="polyattn", producer_version=__version__,
    )  # fmt: skip
    onnx.checker.check_model(model, full_check=True)
    return model


def _declared(graph: Graph, name: str, tokens: str, n_dims: int) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, graph.type, ["batch", tokens, n_dims])


def _require_size(layer: LinearAttention | SoftmaxAttention, itemsize: int) -> None:
    """Refuse a layer whose numbers do not fit one file."""
    size = itemsize * sum(array.size for array in layer.arrays().values())
    if size > MOST_BYTES - (1 << 20):
        raise InvalidInput(
            f"the layer holds {readable_bytes(size)}, and a file of ONNX at most "
            f"{readable_bytes(MOST_BYTES)}; "
            'give dtype="float32", or layers of fewer heads whose outputs are added.'
        )
