"""Pages in headless Chromium: they work, they ask for nothing, they fit a phone."""

import importlib

import pytest
from markupsafe import Markup
from selenium.webdriver.common.keys import Keys

import polyattn as pa
from browser import DESK, PHONE, check_page
from planted import problem
from polyattn.programs import machines
from polyattn.programs.machines import NamedMachine
from polyattn.report.figures import new_figure
from polyattn.report.page import Section, render_page, write_page
from polyattn.report.programs import program_sections
from polyattn_papers.reproduction import NAMES, Experiment, Gate, reproduce

P = pa.programs

BEAVER = machines.busy_beaver(4)
N_CELLS = 32
EVIL = ("</script><script>alert(1)</script>", "<!-- --><img src=x>")


def write(path, *arguments, **options):
    """The page of a program."""
    sections, script = program_sections(*arguments, **options)
    write_page(path, render_page("A program", "One layer.", sections, script))
    return path


@pytest.fixture(scope="module")
def beaver_page(tmp_path_factory):
    program = P.compile(P.universal_turing_machine(4, 2, N_CELLS))
    return write(tmp_path_factory.mktemp("pages") / "beaver.html", program, BEAVER)


def expected(steps):
    """The state, the cell of the head and the letters on the tape after so many steps."""
    run = BEAVER.run([0] * N_CELLS, max_steps=steps)
    place = sum(step.move for step in run.history)
    return "H" if run.halted else "ABCD"[run.state], str(place), sum(run.tape)


def seen(browser):
    """What the page shows of the same."""
    head = browser.find("#run-strip .head i").text
    cells = [cell.get_attribute("textContent") for cell in browser.find_all("#run-strip b")]
    return browser.text("#run-state"), head, cells.count("1")


def test_a_run_is_clicked_through(browser, beaver_page):
    browser.open(beaver_page)
    assert (browser.text("#run-count"), seen(browser)) == ("0", expected(0))
    for step in range(1, 6):
        browser.find("#run-next").click()
        assert (browser.text("#run-count"), seen(browser)) == (str(step), expected(step))
        rule = BEAVER.run([0] * N_CELLS, max_steps=step + 1).history[-1]
        assert f"reads {rule.read}, writes {rule.write}" in browser.text("#run-text")
        applied = browser.find(".rules .applied").get_attribute("id")
        assert applied == f"run-rule-{rule.state}-{rule.read}"
        tokens = [token.text for token in browser.find_all("#run-tokens .token")]
        assert len(tokens) == 2
        assert f"key = {'ABCD'[rule.state]}, {rule.read}" in tokens[0]
        assert "margin 0.5" in tokens[1]
    browser.find("#run-previous").click()
    assert seen(browser) == expected(4)
    browser.find("#run-last").click()
    assert (browser.text("#run-count"), seen(browser)) == ("107", expected(107))
    assert browser.text("#run-text") == "It has halted in H."
    assert not browser.find("#run-next").is_enabled()
    browser.find("#run-first").click()
    assert seen(browser) == expected(0)
    assert not browser.find("#run-previous").is_enabled()
    assert browser.console() == []


def test_the_slider_and_the_keys_move_the_run(browser, beaver_page):
    browser.open(beaver_page)
    body = browser.find("body")
    for keys, step in (
        (Keys.ARROW_RIGHT * 3, 3),
        (Keys.ARROW_LEFT, 2),
        (Keys.END, 107),
        (Keys.ARROW_RIGHT, 107),
        (Keys.HOME, 0),
    ):
        body.send_keys(keys)
        assert (browser.text("#run-count"), seen(browser)) == (str(step), expected(step))
    slider = browser.find("#run-slider")
    browser.driver.execute_script(
        "arguments[0].value = 42; arguments[0].dispatchEvent(new Event('input'));", slider
    )
    assert (browser.text("#run-count"), seen(browser)) == ("42", expected(42))
    # With the slider in focus a key moves it once, and not a second time by the page.
    slider.send_keys(Keys.ARROW_RIGHT)
    assert (browser.text("#run-count"), seen(browser)) == ("43", expected(43))
    assert slider.get_attribute("aria-valuetext") == "step 43 of 107"
    assert browser.find("[aria-live=polite]").get_attribute("id") == "run-text"


def test_the_head_stays_in_sight_on_a_phone(browser, beaver_page):
    browser.open(beaver_page, PHONE)
    for button in ("last", "first"):
        browser.find(f"#run-{button}").click()
        strip, head = (browser.find(each).rect for each in ("#run-strip", "#run-strip .head"))
        assert strip["x"] <= head["x"]
        assert head["x"] + head["width"] <= strip["x"] + strip["width"] + 1


def test_without_scripts_a_page_can_still_be_read(browser, beaver_page):
    browser.open(beaver_page, scripts=False)
    assert not browser.find("#run-controls").is_displayed()
    assert browser.text("#run-state") == "A"
    rows = [row.text for row in browser.find_all(".steps tbody tr")]
    assert rows[0].startswith("0 ")
    assert "reads 0, writes 1" in rows[0]
    assert rows[-1].startswith("107 ")
    assert rows[-1].endswith("It has halted in H.")


def test_an_automaton_reads_its_word(browser, tmp_path):
    even = NamedMachine(machines.parity(), ("even", "odd"), ("0", "1"), "parity", decides=True)
    path = write(tmp_path / "even.html", P.universal_dfa(2, 2, 6), even, "1101")
    assert check_page(browser, path) == []
    states = []
    for at in range(5):
        states.append(browser.text("#run-state"))
        assert len(browser.find_all("#run-strip .read")) == at
        if at < 4:
            assert browser.find("#run-strip .head i").text == str(at)
            browser.find("#run-next").click()
    assert states == ["even", "odd", "even", "even", "odd"]
    assert "rejects" in browser.text("#run-text")
    assert browser.find_all("#run-strip .head") == []


def test_tokens_are_appended_one_by_one(browser, tmp_path):
    path = write(tmp_path / "memory.html", P.associative_memory(4, 9), {0: 3, 2: 8}, 2)
    assert check_page(browser, path) == []
    rows = browser.find("#run-rows")
    assert rows.text.split("\n") == ["prompt 0 3", "prompt 2 8", "prompt 2"]
    browser.find("#run-next").click()
    assert rows.text.split("\n")[-1] == "0 8"
    browser.find("#run-first").click()
    assert len(rows.text.split("\n")) == 3


def test_names_are_shown_and_not_run(browser, tmp_path):
    named = NamedMachine(machines.parity(), EVIL, ("0", "1"), EVIL[0], decides=True)
    path = write(tmp_path / "evil.html", P.universal_dfa(2, 2, 3), named, "101")
    assert check_page(browser, path) == []
    browser.find("#run-next").click()
    assert browser.text("#run-state") == EVIL[1]
    assert browser.find_all("img") == []
    assert browser.console() == []


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("cells", [N_CELLS, 512])
def test_pages_of_programs_are_clean(browser, tmp_path, width, cells):
    program = P.universal_turing_machine(5, 2, cells)
    path = write(tmp_path / "page.html", program, machines.busy_beaver(5), max_steps=300)
    assert check_page(browser, path, width) == []
    browser.find("#run-last").click()
    assert browser.overflow()[0] == 0


def test_the_report_of_a_compiled_program_is_clean(browser, tmp_path):
    path = tmp_path / "report.html"
    P.compile(P.universal_dfa(3, 2, 5)).report(path, machines.divisibility(3), [1, 1, 0])
    assert check_page(browser, path) == []
    browser.find("#run-last").click()
    assert browser.text("#run-state") == "0"


def tiny_experiment():
    """Squares of numbers, as an experiment."""

    def draw(rows):
        figure = new_figure()
        axes = figure.subplots()
        axes.plot([row["number"] for row in rows], [row["square"] for row in rows])
        return figure

    return Experiment(
        name="tiny",
        title="Squares",
        claim="Squares grow.",
        reference="nobody 2024",
        cells=lambda _: [{"number": number} for number in range(5)],
        run=lambda settings: [{"square": settings["number"] ** 2}],
        findings=lambda rows: [f"The largest is {rows[-1]['square']}."],
        gates=lambda rows: [Gate("they grow", rows[-1]["square"] > 1, "yes")],
        draw=draw,
    )


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_pages_of_reproductions_are_clean(browser, tmp_path, monkeypatch, width):
    module = importlib.import_module("polyattn_papers.reproduction.reproduce")
    monkeypatch.setattr(module, "find", lambda _: tiny_experiment())
    assert reproduce("tiny", tmp_path).passed
    assert check_page(browser, tmp_path / "tiny" / "index.html", width) == []
    assert len(browser.find_all("svg")) == 1
    assert "The largest is 16." in browser.text("body")
    assert check_page(browser, tmp_path / "index.html", width) == []
    link = browser.find("a[href='tiny/index.html']")
    link.click()
    assert browser.driver.title == "Squares"
    assert "tiny" not in NAMES


@pytest.mark.parametrize(
    ("kind", "verdict"), [("tall", "identifiable"), ("wide", "not_identifiable")]
)
def test_pages_of_fits_are_clean(browser, tmp_path, kind, verdict):
    planted = problem(kind, n_dims=4)
    assert pa.certify(planted.X).verdict == verdict
    path = tmp_path / "fit.html"
    pa.fit(planted.X, planted.Y).report(path, X=planted.X, Y=planted.Y)
    for width in (PHONE, DESK):
        assert check_page(browser, path, width) == []
    assert browser.find_all("svg, img")


START = """<!doctype html><meta name=viewport content="width=device-width">
<link rel=icon href="data:,">"""
BAD = {
    "console": ("<p>fine</p>", "console.error('broken');", "broken"),
    "thrown": ("<p>fine</p>", "missing();", "missing is not defined"),
    "request": ('<img width="9" height="9" src="http://example.invalid/x.png">', "", "example"),
    "picture": ('<svg style="width: 0; height: 0"></svg>', "", "picture without size"),
    "wide": ('<div style="width: 1000px">wide</div>', "", "pixels too wide for 390"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_wrong_with_a_page_is_found(browser, tmp_path, kind):
    """Negative control."""
    body, script, said = BAD[kind]
    path = tmp_path / "bad.html"
    path.write_text(f"{START}{body}<script>{script}</script>", encoding="utf-8")
    complaints = check_page(browser, path)
    assert any(said in complaint for complaint in complaints), complaints


def test_the_policy_of_a_page_stops_requests_and_other_scripts(browser, tmp_path):
    """Negative control: what a template lets through by mistake is not run, and is found."""
    bad = Markup('<img src="http://example.invalid/x.png" onerror="document.title = 1">')
    write_page(tmp_path / "page.html", render_page("Fine", "lead", [Section("One", bad)]))
    complaints = check_page(browser, tmp_path / "page.html")
    assert any("Content Security Policy" in complaint for complaint in complaints)
    assert browser.driver.title == "Fine"


def test_a_clean_page_has_no_complaints(browser, tmp_path):
    """The other side of the negative controls, with a file beside the page and a picture in it."""
    (tmp_path / "style.css").write_text("p { color: green; }", encoding="utf-8")
    path = tmp_path / "page.html"
    dot = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"
    path.write_text(
        f'{START}<link rel=stylesheet href=style.css><img src="{dot}">', encoding="utf-8"
    )
    assert check_page(browser, path) == []
