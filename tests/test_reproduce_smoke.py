"""Every experiment in its small profile, from the command line: gates hold, files are there."""

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from polyattn.cli.main import cli
from polyattn_papers.reproduction import NAMES

pytest.importorskip("torch", reason="the baselines of the experiments need torch")


@pytest.mark.parametrize("name", NAMES)
def test_smoke(name, tmp_path):
    start = time.perf_counter()
    done = CliRunner().invoke(cli, ["reproduce", name, "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    (made,) = json.loads(done.stdout)["reproductions"]
    assert made["passed"]
    assert made["gates"]
    assert made["findings"]
    assert made["seconds"] <= time.perf_counter() - start
    folder = Path(tmp_path) / name
    for file in ("table.csv", "table.json", "figure.png", "figure.svg", "index.html"):
        assert (folder / file).stat().st_size > 100
