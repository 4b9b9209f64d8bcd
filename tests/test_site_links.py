"""The check of links that the documentation site must pass finds what is wrong."""

import pytest

from site_links import wrong_links


@pytest.mark.parametrize(
    ("link", "said"),
    [("/index.html", "/index.html"), ("missing.html", "missing"), ("#nowhere", "#nowhere"),
     ("../outside.html", "outside"), ("file:///x.html", "file:"), ("sub", "sub")],
)  # fmt: skip
def test_a_link_that_leads_nowhere_is_found(tmp_path, link, said):
    """Negative control, beside links that are fine."""
    home = tmp_path / "html"
    (home / "sub").mkdir(parents=True)
    (home / "other.html").write_text('<p id="here">x</p>', encoding="utf-8")
    fine = '<a href="other.html#here">a</a><a href="https://a.b/c">b</a><a href="#top" id="top">'
    (home / "index.html").write_text(fine, encoding="utf-8")
    assert wrong_links(home) == {}
    (home / "index.html").write_text(f'{fine}<a href="{link}">c</a>', encoding="utf-8")
    assert any(said in one for one in wrong_links(home)["index.html"])
