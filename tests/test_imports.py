"""What importing polyattn loads, in a fresh interpreter."""

import subprocess
import sys

import pytest

HEAVY = (
    "torch", "matplotlib", "dask", "sklearn", "distributed", "pyarrow", "flint", "aeon", "sktime",
)  # fmt: skip


def loaded_after(statement):
    """The names of all modules that a fresh interpreter has loaded after the statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules, sep='\\n')"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_importing_is_light():
    loaded = loaded_after("import polyattn")
    assert "polyattn" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_a_decay_of_short_sequences_loads_nothing_slow():
    """scipy.signal and scipy.stats take longer than most fits."""
    loaded = loaded_after(
        "import numpy as np, polyattn as pa\n"
        "X = np.random.default_rng(0).standard_normal((9, 4, 1))\n"
        "pa.fit(X, X, form=pa.Form(mode='causal', decay=0.5))"
    )
    assert loaded.isdisjoint({"scipy.signal", "scipy.stats"})


def test_the_law_needs_numpy_alone():
    loaded = loaded_after(
        "import importlib.util, sys, types\n"
        # The package itself is not run, so that only what the reference needs is loaded.
        "package = types.ModuleType('polyattn')\n"
        "package.__path__ = importlib.util.find_spec('polyattn').submodule_search_locations\n"
        "sys.modules['polyattn'] = package\n"
        "import polyattn.reference.erm, polyattn.reference.erm, polyattn.reference.layer"
    )
    ours = {name for name in loaded if name.startswith("polyattn.")}
    assert "polyattn.reference.features" in ours
    assert all(name.startswith("polyattn.reference") for name in ours)
    assert "scipy" not in loaded


def test_the_check_can_fail():
    """Negative control: a heavy module that is imported is seen."""
    assert "sklearn" in loaded_after("import sklearn")


def test_every_public_name_exists():
    import polyattn

    for name in polyattn.__all__:
        assert getattr(polyattn, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = polyattn.nonsense
