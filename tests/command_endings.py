"""How commands end: JSON alone on stdout, or one line on stderr; and a fit that they are given."""

import json

import numpy as np
import pytest

import polyattn as pa

# Fixtures, which a module names: ``task, model = planted_task, saved_fit``.


@pytest.fixture
def planted_task():
    return pa.data.planted(200, 6, 3, n_heads=1, mode="last", random_state=0)


@pytest.fixture
def saved_fit(run, task):
    """A saved fit of ``task`` in model.safetensors, with the data in data.npz."""
    np.savez("data.npz", X=task.X, Y=task.Y)
    assert run("fit", "data.npz", "-o", "model.safetensors").exit_code == 0
    return "model.safetensors"


def parsed(result, code=0):
    """The JSON object on stdout, which must be all that is there."""
    assert result.exit_code == code, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


def refused(result, *words, code=1):
    """Ended by one line on stderr that contains the words; nothing on stdout, no traceback."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert isinstance(result.exception, SystemExit)
    assert ("Usage:" in result.stderr) == (code == 2)
    if code == 1:
        assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    for word in words:
        assert word in " ".join(result.stderr.split()), result.stderr
