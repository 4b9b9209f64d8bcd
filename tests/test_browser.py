"""Pages in headless Chromium: they work, ask for nothing, and fit a phone."""

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

import oracle
import polyattn as pa
from browser import DESK, PHONE, check_page

pytestmark = pytest.mark.slow

P = pa.programs
BEAVER = P.machines.busy_beaver(4)
N_CELLS = 32
EVIL = ("</script><script>alert(1)</script>", "<!-- --><img src=x>")


@pytest.fixture(scope="module")
def beaver_page(tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "beaver.html"
    P.compile(P.universal_turing_machine(4, 2, N_CELLS)).report(path, BEAVER)
    return path


def expected(steps):
    """The steps done, the state, the cell of the head, and how many cells are not blank."""
    run = BEAVER.run([0] * N_CELLS, max_steps=steps)
    place = sum(step.move for step in run.history)
    return str(steps), "H" if run.halted else "ABCD"[run.state], str(place), sum(run.tape)


def seen(browser):
    head = browser.find("#run-strip .head i").text
    cells = [cell.get_attribute("textContent") for cell in browser.find_all("#run-strip b")]
    return browser.find("#run-count").text, browser.find("#run-state").text, head, cells.count("1")


def test_a_run_is_clicked_through(browser, beaver_page):
    browser.open(beaver_page)
    assert seen(browser) == expected(0)
    for step in range(1, 6):
        browser.find("#run-next").click()
        assert seen(browser) == expected(step)
        rule = BEAVER.run([0] * N_CELLS, max_steps=step + 1).history[-1]
        applied = browser.find(".rules .applied").get_attribute("id")
        assert applied == f"run-rule-{rule.state}-{rule.read}"
        tokens = [token.text for token in browser.find_all("#run-tokens .token")]
        assert f"key = {'ABCD'[rule.state]}, {rule.read}" in tokens[0]
        assert "0.5" in tokens[1]
    for button, step in (("previous", 4), ("last", 107), ("first", 0)):
        browser.find(f"#run-{button}").click()
        assert seen(browser) == expected(step)
        assert browser.find("#run-next").is_enabled() == (step != 107)
    assert not browser.find("#run-previous").is_enabled()
    assert browser.console() == []


def test_the_slider_and_the_keys_move_the_run(browser, beaver_page):
    browser.open(beaver_page)
    for keys, step in (
        (Keys.ARROW_RIGHT * 3, 3), (Keys.ARROW_LEFT, 2), (Keys.END, 107), (Keys.HOME, 0),
    ):  # fmt: skip
        browser.find("body").send_keys(keys)
        assert seen(browser) == expected(step)
    slider = browser.find("#run-slider")
    move = "arguments[0].value = 42; arguments[0].dispatchEvent(new Event('input'));"
    browser.driver.execute_script(move, slider)
    assert seen(browser) == expected(42)
    # With the slider in focus a key moves it once, and not a second time by the page.
    slider.send_keys(Keys.ARROW_RIGHT)
    assert seen(browser) == expected(43)


def test_without_scripts_all_can_be_read(browser, beaver_page):
    browser.open(beaver_page, scripts=False)
    assert not browser.find("#run-controls").is_displayed()
    rows = [row.text.split(" ")[0] for row in browser.find_all(".steps tbody tr")]
    assert (rows[0], rows[-1]) == ("0", "107")


def test_words_are_read_and_tokens_appended_and_names_are_no_code(browser, tmp_path):
    named = P.machines.NamedMachine(P.machines.parity(), EVIL, ("0", "1"), EVIL[0], decides=True)
    P.compile(P.universal_dfa(2, 2, 6)).report(tmp_path / "parity.html", named, "1101")
    assert check_page(browser, tmp_path / "parity.html") == []
    for at, state in enumerate((0, 1, 0, 0, 1)):
        assert browser.find("#run-state").text == EVIL[state]
        assert len(browser.find_all("#run-strip .read")) == at
        assert [head.text for head in browser.find_all("#run-strip .head i")] == [str(at)][: at < 4]
        if at < 4:
            browser.find("#run-next").click()
    assert browser.find_all("img") == browser.console() == []
    P.compile(P.associative_memory(4, 9)).report(tmp_path / "memory.html", {0: 3, 2: 8}, 2)
    assert check_page(browser, tmp_path / "memory.html") == []
    rows = browser.find("#run-rows")
    prompt = ["prompt 0 3", "prompt 2 8", "prompt 2"]
    for button, shown in (("first", prompt), ("next", [*prompt, "0 8"]), ("first", prompt)):
        if browser.find(f"#run-{button}").is_enabled():
            browser.find(f"#run-{button}").click()
        assert rows.text.split("\n") == shown


START = """<!doctype html><meta name=viewport content="width=device-width"><meta charset="utf-8">
<link rel=icon href="data:,">"""


def pages():
    """What writes a page of every shape."""
    tall = oracle.planted("tall", noise=1e-9)
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((n, 2)) for n in rng.integers(2, 6, 60)]
    labels = [np.where(x[:, 0] > 0, "walking up a hill, breathing heavily", "<b>rest") for x in X]
    tokens = pa.LinearAttentionClassifier(mode="causal", ridge=1.0).fit(X, labels)
    long = P.compile(P.universal_turing_machine(4, 2, 512))
    return {
        "fit": lambda path: pa.fit(tall.X, tall.Y, ridge="loo").report(path, tall.X, tall.Y),
        "classes": lambda path: tokens.report(path, X, labels),
        "long tape": lambda path: long.report(path, BEAVER),
    }


def test_pages_are_clean_at_every_width(browser, tmp_path):
    for name, write in pages().items():
        path = tmp_path / f"{name}.html"
        write(path)
        for width in (320, PHONE, DESK):
            assert check_page(browser, path, width) == [], (name, width)
            for button in browser.find_all("#run-last"):
                button.click()
                assert browser.overflow()[0] == 0


BAD = {
    "broken": ("<p>fine</p>", "console.error('broken');"),
    "missing is not defined": ("<p>fine</p>", "missing();"),
    "example": ('<img width="9" height="9" src="http://example.invalid/x.png">', ""),
    "picture without size": ('<svg style="width: 0; height: 0"></svg>', ""),
    "pixels too wide for 390": ('<div style="width: 1000px">wide</div>', ""),
}


def test_what_is_wrong_with_a_page_is_found(browser, tmp_path, beaver_page):
    """Negative controls, of the policy of a page too; and a clean page has no complaints."""
    path = tmp_path / "bad.html"
    for said, (body, script) in BAD.items():
        path.write_text(f"{START}{body}<script>{script}</script>", "utf-8")
        complaints = check_page(browser, path)
        assert any(said in complaint for complaint in complaints), complaints
    bad = '<img src="http://example.invalid/x.png" onerror="document.title = 1"></body>'
    page = beaver_page.read_text("utf-8")
    path.write_text(page.replace("</body>", bad), "utf-8")
    assert any("Content Security Policy" in complaint for complaint in check_page(browser, path))
    assert browser.driver.title != "1"
    (tmp_path / "style.css").write_text("p { color: green; }", "utf-8")
    dot = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"
    path.write_text(f'{START}<link rel=stylesheet href=style.css><img src="{dot}">', "utf-8")
    assert check_page(browser, path) == []
