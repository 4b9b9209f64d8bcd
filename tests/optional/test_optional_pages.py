"""Guides whose examples need packages of the optional environment run as printed."""

import pytest

from pages import OPTIONAL, name_of, read, run_page


@pytest.mark.parametrize("page", OPTIONAL, ids=name_of)
def test_a_page_runs(page, tmp_path, monkeypatch):
    for package in OPTIONAL[page]:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    run_page(read(page), str(page))
