"""The benchmark of growth: it runs, its gates can fail, and the page shows what it measured."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import polyattn as pa
from pages import blocks, read
from polyattn.solve import planning
from polyattn.sources.stretches import MOST_STRETCHES

ROOT = Path(__file__).resolve().parent.parent
PAGE, MEASURED = ROOT / "docs" / "capacity.md", ROOT / "docs" / "capacity" / "measured.json"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    """The folder of benchmarks and that of the tables, so that their modules can be imported."""
    for folder in ("benchmarks", "docs/_ext"):
        monkeypatch.syspath_prepend(str(ROOT / folder))


@pytest.fixture
def capacity():
    import capacity

    return capacity


@pytest.fixture
def committed():
    return json.loads(MEASURED.read_text(encoding="utf-8"))


def planted_points(steps, name, over, extra=0.0):
    """Points that grow as promised, times size**extra."""
    step = steps.STEPS[name]
    [sweep] = [each for each in step.sweeps if each.letter == over]
    return [
        {"step": name, "over": over, **shape._asdict(), "megabytes": 100.0}
        | {"seconds": 1e-9 * step.flops(shape) * getattr(shape, over) ** extra, "slowest": 1.0}
        for shape in sweep.shapes()
    ]


def test_the_quick_profile_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "capacity.py", "--quick", "--out", tmp_path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "measured.json").read_text(encoding="utf-8"))
    assert found["profile"] == "quick"
    assert {point["step"] for point in found["points"]} == set(found["steps"])
    assert all(point["seconds"] > 0 for point in found["points"] + found["fits"])
    assert (tmp_path / "growth.svg").stat().st_size > 10_000
    for growth in found["growth"]:
        assert f"{growth['over']}^{growth['exponent']:.2f}" in done.stdout


@pytest.mark.parametrize(("extra", "holds"), [(0.0, True), (0.2, True), (0.3, False), (-1, False)])
def test_a_gate_opens_only_for_what_is_promised(capacity, extra, holds):
    """Planted growths, and negative controls on both sides."""
    import capacity_steps

    for name, over in (("summaries", "N"), ("moments", "N"), ("kernel", "d"), ("20 passes", "e")):
        points = planted_points(capacity_steps, name, over, extra)
        seconds = capacity.growths(points, capacity.TOLERANCE)[0]
        assert seconds["quantity"] == "seconds"
        assert seconds["exponent"] - seconds["promised"] == pytest.approx(extra, abs=0.011)
        assert seconds["holds"] is holds


def test_memory_may_grow_less_but_not_more(capacity):
    import capacity_steps

    points = planted_points(capacity_steps, "moments", "N")
    [_, memory] = capacity.growths(points, capacity.TOLERANCE)
    assert (memory["exponent"], memory["promised"], memory["holds"]) == (0.0, 0.0, True)
    for point in points:
        point["megabytes"] *= point["N"]
    [_, memory] = capacity.growths(points, capacity.TOLERANCE)
    assert (memory["exponent"], memory["holds"]) == (1.0, False)


def test_a_missed_growth_is_an_error(capacity, tmp_path, capsys):
    """Negative control of the whole script: doctored points."""
    import capacity_steps

    points = planted_points(capacity_steps, "moments", "N", extra=1.0)
    doctored = {"profile": "full", "points": points, "fits": [], "workers": []}
    file = tmp_path / "measured.json"
    file.write_text(json.dumps(doctored), encoding="utf-8")
    with pytest.raises(SystemExit, match="not as promised"):
        capacity.main(["--measured", str(file)])
    assert "MISSED  moments" in capsys.readouterr().out


def test_rounds_keep_the_fastest_and_the_slowest(capacity):
    first = [{"step": "a", "seconds": 2.0, "slowest": 3.0, "megabytes": 5.0}]
    second = [{"step": "a", "seconds": 1.0, "slowest": 1.5, "megabytes": 6.0}]
    assert capacity.best_of([first, second]) == [
        {"step": "a", "seconds": 1.0, "slowest": 3.0, "megabytes": 5.0}
    ]


def test_promises_stand_in_the_docstrings():
    from capacity_steps import STEPS

    for name, step in STEPS.items():
        said = " ".join(inspect.getdoc(step.documented).split())
        assert [quote for quote in step.quotes if quote not in said] == [], name


def test_what_is_committed_is_whole_and_holds(capacity, committed):
    from capacity_steps import FITS, STEPS

    assert (committed["profile"], committed["tolerance"]) == ("full", capacity.TOLERANCE)
    measured = {(each["step"], each["over"]) for each in committed["points"]}
    assert measured == {(name, s.letter) for name, step in STEPS.items() for s in step.sweeps}
    assert {fit["solver"] for fit in committed["fits"]} == set(FITS)
    assert capacity.growths(committed["points"], capacity.TOLERANCE) == committed["growth"]
    assert all(each["holds"] for each in committed["growth"])


def test_plans_are_those_of_today_and_near(capacity, committed):
    """The expectation on the page is what plan says now, and within its factor."""
    for fit in committed["fits"]:
        assert capacity.with_plan(fit)["expected_seconds"] == fit["expected_seconds"]
        assert capacity.is_near(fit), fit
    assert capacity.outlook() == committed["outlook"]
    assert not capacity.is_near({"expected_seconds": 4.0, "seconds": 1.0})
    assert not capacity.is_near({"expected_seconds": 1.0, "seconds": 4.0})


def printed_beside(source):
    """The lines that a block of the page says it prints."""
    return [line.removeprefix("# ") for line in source.splitlines() if line.startswith("# ")]


def test_the_page_prints_what_it_says(capsys):
    [example] = [block for block in blocks(read(PAGE)) if block.language == "python"]
    exec(compile(example.source, str(PAGE), "exec"), {})  # noqa: S102 – our own page
    assert printed_beside(example.source) == capsys.readouterr().out.splitlines()


def test_sentences_of_the_page_are_what_plan_says(monkeypatch):
    page = " ".join(read(PAGE).split())
    narrow = pa.solve.plan(10**9, n_dims=8, n_tokens=100, n_workers=100)
    assert f"({narrow.steps['reading']:.0f} of {narrow.seconds:.0f} s)" in page
    plan = pa.solve.plan(10**9, n_dims=16, n_tokens=100, n_workers=100)
    assert f"reading takes {10 * plan.steps['reading'] / 60:.0f} minutes" in page
    assert f"{MOST_STRETCHES} machines do the work" in page
    assert f"{100 - MOST_STRETCHES} have nothing to do" in page
    # How much memory this machine has, has no part in it.
    monkeypatch.setattr(planning, "memory_limit", lambda: 12 << 30)
    monkeypatch.setattr(planning, "kept_numbers", lambda: 10**9)
    wide = pa.solve.plan(10**9, n_dims=32, n_tokens=100, n_workers=100)
    assert wide.solver == "iterative"
    assert f"summaries, {8 * (528 + 32 + 1) / MOST_STRETCHES:.0f} GB for each worker" in page
    minutes = wide.steps["rereading"] / 60, wide.seconds / 60
    assert "that is {:.0f} of {:.0f} minutes".format(*minutes) in page
    seconds = [
        pa.solve.plan(10**6, n_dims=d, solver="primal").steps["solution"] for d in (16, 24, 32)
    ]
    words = "by the plan {:.1f} s at d = 16, {:.1f} s at d = 24, {:.0f} s at d = 32"
    assert words.format(*seconds) in page


def test_tables_show_what_was_measured(committed):
    import capacity_tables as tables

    shown = {row[0]: row for row in tables.time_rows(committed)}
    for growth in committed["growth"]:
        cell = f"{growth['exponent']:.2f} ({growth['promised']:.2f})"
        if growth["quantity"] == "seconds":
            assert shown[growth["step"]][2 + "Nnde".index(growth["over"])] == cell
    assert len(tables.fit_rows(committed)) == len(committed["fits"])
    assert [row[0] for row in tables.worker_rows(committed)][:2] == ["1", "2"]
    assert any(row[0] == "certificate" for row in tables.memory_rows(committed))
    assert "One thread" in tables.conditions(committed)
    assert len(tables.constant_rows()) == len(tables.CONSTANTS)
