"""What the checks of a toolbox found, in numbers: a table, and the page that quotes it."""

import linecache
import re
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "conformance.md"


def status_of(result):
    """PASSED, SKIPPED or FAILED, from what a toolbox says of a check: a text or an exception."""
    found = re.match(r"(PASSED|SKIPPED)\b", result) if isinstance(result, str) else None
    return found[1] if found else "FAILED"


@contextmanager
def early_returns(path):
    """The names of checks in files of this path that end at a ``return``: they looked at nothing.

    A check that looks ends with its last assertion.
    """
    found, before = Counter(), sys.gettrace()

    def inside(frame, event, _):
        if event == "return":
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            found[frame.f_code.co_name] += line.strip().startswith("return")
        return inside

    def outside(frame, _event, _):
        is_check = frame.f_code.co_name.startswith(("check_", "test_"))
        return inside if is_check and path in frame.f_code.co_filename else None

    sys.settrace(outside)
    try:
        yield found
    finally:
        sys.settrace(before)


def row_of(name, results, idle):
    """A row of the table: checks that passed, how many of them looked at nothing; the others."""
    counts = Counter(map(status_of, results.values()))
    numbers = [counts["PASSED"], idle.total(), counts["SKIPPED"], counts["FAILED"]]
    return f"| `{name}` | {' | '.join(map(str, numbers))} |"


def failures(results):
    """The checks that did not pass, with what was said."""
    return {name: said for name, said in results.items() if status_of(said) == "FAILED"}


def require_on_page(row):
    """The page quotes these numbers, and they are shown."""
    print(row)  # noqa: T201 - `pytest -rP` shows it
    assert row in PAGE.read_text(encoding="utf-8")
