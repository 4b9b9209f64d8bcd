"""Attention layers as ONNX models, of standard operators alone: the only package with onnx."""

from polyattn.errors import missing_extra

try:
    import onnx as _onnx  # noqa: F401 – here, so that its absence is reported once
except ModuleNotFoundError as error:
    if error.name != "onnx":
        raise
    raise missing_extra("onnx", "onnx") from None

from polyattn.interop.onnx.export import to_onnx

__all__ = ["to_onnx"]
