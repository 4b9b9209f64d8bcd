"""The comparison on real series runs, where its environment exists (`make real-data`)."""

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv-optional" / "bin" / "python"


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="`make real-data` has made no environment yet")
def test_the_comparison_runs(tmp_path):
    out = tmp_path / "rows.json"
    done = subprocess.run(
        [PYTHON, "-W", "ignore", "compare.py", "--only", "CardanoSentiment", "--splits", "2",
         "--out", out],
        cwd=ROOT / "examples" / "real_data", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 2 * 5
    assert all(0.1 < row["score"] < 1 for row in rows)
    assert "linear attention" in done.stdout
