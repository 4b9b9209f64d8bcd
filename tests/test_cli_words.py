"""Messages of the command line speak its words, and say of tables what can be done with them."""

from pathlib import Path

import numpy as np
import pytest

from command_endings import refused
from polyattn.cli.command_words import in_command_words
from polyattn.cli.main import cli

FIT, PREDICT = cli.commands["fit"], cli.commands["predict"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("give sequence=, the column", "give --sequence, the column"),
        ("One needs mode='causal' or mode='full'.", "One needs --mode causal or --mode full."),
        ("solver='direct' is more exact", "--solver direct is more exact"),
        ("try bias=True: a constant", "try --bias: a constant"),
        ("window=1 with include_query=False leaves", "--window 1 with --no-include-query leaves"),
        ("bias=True or form=Form(intercept=True) adds one", "--bias or --intercept adds one"),
        ("Form(mean=True, decay=0.9) is", "--mean, --decay 0.9 is"),
        ("n_heads must be", "--n-heads must be"),
        ("Give n_heads=None, or ridge=0.5.", "Give no --n-heads, or --ridge 0.5."),
        ("ridge must be a number", "--ridge must be a number"),
        ("With checkpoint=PATH it goes on", "With --checkpoint PATH it goes on"),
        ("pa.fit finds that layer.", "polyattn fit finds that layer."),
        ("polyattn.certify(X) decides", "polyattn certify decides"),
        # What is no argument stays.
        ("the mode of the ridge", "the mode of the ridge"),
        ("x_mode='a', other=1, form.mode='last'", "x_mode='a', other=1, form.mode='last'"),
    ],
)
def test_arguments_become_options(said, expected):
    assert in_command_words(said, FIT) == expected


def test_only_options_that_the_verb_has():
    said = "solver='direct' needs sequence=; remove or impute them"
    assert in_command_words(said, PREDICT) == (
        "solver='direct' needs --sequence; remove or impute them"
    )
    assert in_command_words(said, None) == said
    assert "--impute" in in_command_words(said, FIT)


TABLE = "id,time,speed,load,state\n" + "".join(
    f"run-{i},{t},{i + t},{i - t},{'on' if i % 2 else 'off'}\n" for i in range(6) for t in range(3)
)
COLUMNS = ("--sequence", "id", "--order", "time", "--tokens", "speed,load")


@pytest.fixture
def table(run):
    Path("data.csv").write_text(TABLE, encoding="utf-8")
    return run


def test_a_table_without_columns_is_answered_by_a_command_that_runs(table):
    result = table("fit", "data.csv")
    refused(
        result, "speed (whole numbers)", "state (text)",
        "For example: polyattn fit data.csv --sequence id --order time --tokens speed,load "
        "--targets state --classify",
    )  # fmt: skip
    example = result.stderr.strip().partition("For example: polyattn ")[2]
    assert table(*example.split()).exit_code == 0


def test_other_verbs_name_their_own_options(table):
    refused(
        table("certify", "data.csv"),
        "For example: polyattn certify data.csv --sequence id --order time --tokens speed,load",
    )
    assert "--targets" not in table("certify", "data.csv").stderr


def test_columns_that_say_nothing_get_no_example(run):
    Path("odd.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    result = run("fit", "odd.csv")
    refused(result, "a (whole numbers), b (whole numbers)")
    assert "For example" not in result.stderr


def test_one_missing_option_is_named(table):
    refused(table("fit", "data.csv", "--tokens", "speed", "--targets", "load"), "give --sequence,")
    refused(table("fit", "data.csv", *COLUMNS), "give --targets COLUMNS, of which ['state']")


@pytest.mark.parametrize("line", [2, 9, 19])
@pytest.mark.parametrize("text", ["n/a?", "3,5", "12 km"])
def test_a_text_among_numbers_is_named_by_file_line_and_column(run, line, text):
    lines = TABLE.splitlines()
    values = lines[line - 1].split(",")
    values[3] = f'"{text}"'
    lines[line - 1] = ",".join(values)
    lines.insert(3, "")  # an empty line counts, too
    Path("bad.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    at = line if line < 4 else line + 1
    refused(run("certify", "bad.csv", *COLUMNS), "bad.csv", f"line {at}:", "'load'", repr(text))


def test_a_text_far_down_is_counted_from_the_first_line(run, monkeypatch):
    """Chunks begin anywhere in a file; lines are counted from its beginning."""
    from polyattn.sources import open_tables

    monkeypatch.setattr(open_tables, "CHUNK_BYTES", 100)
    rows = [f"{i},{i % 7}.5" for i in range(400)]
    rows[333] = "333,oops"
    Path("long.csv").write_text("id,a\n" + "\n".join(rows) + "\n", encoding="utf-8")
    refused(run("certify", "long.csv", "--sequence", "id", "--tokens", "a"), "line 335:", "'oops'")


def test_times_say_what_is_in_them(run):
    X = np.random.default_rng(0).standard_normal((30, 3, 2))
    np.savez("a.npz", X=X, Y=X[:, -1])
    whole = run("fit", "a.npz").stdout
    assert "time to read" in whole
    assert "included" not in whole
    np.savez("b.npz", X=X + 1, Y=X[:, -1])
    chunked = run("fit", "*.npz").stdout
    assert "time to read" not in chunked
    assert "s, reading included" in chunked
    assert "s, search for heads included" in run("fit", "a.npz", "--n-heads", "1").stdout
