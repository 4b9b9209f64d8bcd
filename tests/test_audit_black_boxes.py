"""Audits of functions and modules whose coefficients nobody can read."""

import subprocess
import sys

import numpy as np
import pytest

import polyattn as pa
from audit_tasks import ragged, task
from polyattn.errors import InvalidInput
from polyattn.sequences import MODES


@pytest.mark.parametrize("mode", MODES)
def test_a_function_is_a_black_box(mode):
    X, Y, layer = task(mode)
    report, known = pa.audit(layer.__call__, X, Y, mode=mode), pa.audit(layer, X, Y)
    assert report.distance is None
    assert report.consistent
    assert (report.risk, report.optimal_risk) == (known.risk, known.optimal_risk)
    assert report.implied.distance == pytest.approx(known.implied.distance, rel=1e-6)
    assert "coefficients are unknown" in report.sentence


def test_a_black_box_may_beat_every_linear_layer():
    X, Y, _ = task("last")
    answers = {x.tobytes(): y for x, y in zip(X, Y, strict=True)}
    report = pa.audit(lambda part: [answers[x.tobytes()] for x in part], X, Y)
    assert report.risk == 0.0
    assert report.gap < -report.rounding
    assert report.implied is None
    assert report.consistent
    assert "better than any linear attention layer" in report.sentence


def test_a_black_box_sees_arrays_or_lists():
    seen = []

    def zero(part):
        seen.append(type(part))
        return np.zeros((len(part), 2))

    X, Y = ragged("last")
    pa.audit(zero, X, Y)
    pa.audit(zero, np.ones((4, 3, 2)), np.ones((4, 2)), bias=True)
    assert seen == [list, np.ndarray]


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (np.zeros((7, 2)), "outputs of the layer.*7 targets"),
        (np.zeros((120, 3)), "outputs of the layer.*2 outputs; got 3"),
        (np.full((120, 2), np.nan), "outputs of the layer.*NaN"),
    ],
)
def test_useless_outputs_are_named(outputs, message):
    X, Y, _ = task("last")
    with pytest.raises(InvalidInput, match=message):
        pa.audit(lambda _: outputs, X, Y)


def test_torch_modules():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    X, Y, layer = task("full")
    known = pa.audit(layer, X, Y)
    ours = pa.audit(pa.interop.to_torch(layer), X, Y)
    assert (ours.risk, ours.distance) == (known.risk, known.distance)

    class Wrapped(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.dropout = inner, torch.nn.Dropout(0.5)

        def forward(self, tokens):
            return self.dropout(self.inner(tokens))

    wrapped = Wrapped(pa.interop.to_torch(layer))
    wrapped.inner.eval()
    foreign = pa.audit(wrapped, X, Y, mode="full")
    assert foreign.distance is None
    assert foreign.risk == pytest.approx(known.risk, rel=1e-12)
    assert (wrapped.training, wrapped.dropout.training, wrapped.inner.training) == (1, 1, 0)
    single = pa.audit(wrapped.float(), X, Y, mode="full")
    assert single.risk == pytest.approx(known.risk, rel=1e-4)


def test_torch_modules_take_ragged_sequences_one_by_one():
    pytest.importorskip("torch", reason="torch is not installed")
    for mode in MODES:
        X, Y = ragged(mode)
        layer = pa.data.random_layer(3, 2, 2, mode, random_state=4)
        module = pa.interop.to_torch(layer)
        derived = type("Derived", (type(module),), {})(module.attn, module.value, mode)
        report = pa.audit(derived, X, Y, mode=mode)
        assert report.distance is None
        assert report.risk == pytest.approx(pa.audit(layer, X, Y).risk, rel=1e-12)


def test_modules_that_return_something_else_are_named():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    X, Y, _ = task("last")
    with pytest.raises(InvalidInput, match=r"one tensor.*got tuple"):
        pa.audit(torch.nn.LSTM(3, 2, batch_first=True), X, Y)
    with pytest.raises(InvalidInput, match=r"one tensor.*got \(5, 2\)"):
        pa.audit(torch.nn.Sequential(torch.nn.Linear(3, 2), _First()), X, Y)


def _First():  # noqa: N802 - stands for a class that torch must be there to define
    import torch

    return type("First", (torch.nn.Module,), {"forward": lambda _, tokens: tokens[0]})()


def test_torch_is_not_imported_unasked():
    code = (
        "import sys, numpy as np, polyattn as pa; t = pa.data.planted(60, 5, 2);"
        "pa.audit(t.layer, t.X, t.Y); print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
