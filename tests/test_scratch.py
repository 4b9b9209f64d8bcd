"""A machine with little memory and a full disk: fits take longer, and find the same."""

import os
import resource
import tempfile

import numpy as np
import pytest

import polyattn as pa


@pytest.mark.slow
def test_summaries_that_memory_does_not_hold_cost_time_and_change_nothing(tmp_path, monkeypatch):
    """Passes of the iterative solver go over 4 million numbers, which may stand in a file."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((13_200, 120, 24)), rng.standard_normal((13_200, 1))

    def coef():
        return pa.fit(X, Y, ridge=1e3, solver="iterative").coef

    def same(found):
        return np.abs(found - expected).max() < 1e-10 * np.abs(expected).max()

    expected, sysconf = coef(), os.sysconf
    few_pages = {"SC_PHYS_PAGES": 2000, "SC_AVPHYS_PAGES": 2000}
    monkeypatch.setattr(os, "sysconf", lambda name: few_pages.get(name) or sysconf(name))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert same(coef())
    # Files may not grow beyond a limit: writing fails as on a full disk.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, limits[1]))
    try:
        assert same(coef())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == []
