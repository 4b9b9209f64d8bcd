"""The tables of docs/real_data.md, made of the rows that compare.py wrote to results.json.

``python tables.py`` prints them, ``python tables.py --write`` puts them into the page, between the
comments that name them.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
PAGE = HERE.parent.parent / "docs" / "real_data.md"

#: Seconds; methods that fit in less (median over sets) are ranked among themselves, too.
QUICK = 1.0

ATTENTION, SUMMARIES = "attention recipe", "ridge on summaries"

#: What polyattn has without the recipe.  Each is ranked in its place: beside it, both would push
#: other methods down.
BY_DEFAULT = ("default estimator", "default aeon adapter")


class Results:
    """Scores and seconds: ``scores[data][method]`` is an array over splits.

    A method that was not run on a set has no entry there.
    """

    def __init__(self, rows):
        self.sets = list(dict.fromkeys(row["data"] for row in rows))
        self.methods = list(dict.fromkeys(row["method"] for row in rows))
        self.numbers = {row["data"]: row["measure"] == "rmse" for row in rows}
        self.scores, self.fit, self.predict = (
            {
                name: {
                    method: np.array([row[field] for row in _of(rows, name, method)])
                    for method in self.methods
                    if _of(rows, name, method)
                }
                for name in self.sets
            }
            for field in ("score", "fit_seconds", "predict_seconds")
        )

    def losses(self, name, method):
        """Errors (per cent wrong, or root mean squared error) over splits; lower is better."""
        scores = self.scores[name][method]
        return scores if self.numbers[name] else 100.0 * (1.0 - scores)

    def digits(self, name):
        """Decimals to print: one of per cents, three digits of the smallest error."""
        if not self.numbers[name]:
            return 1
        least = min(values.mean() for values in self.scores[name].values())
        return max(0, 2 - int(np.floor(np.log10(least))))

    def quick(self):
        """The methods that fit in under a second, in the median over sets."""
        medians = {
            m: np.median([np.median(each[m]) for each in self.fit.values() if m in each])
            for m in self.methods
        }
        return [m for m, seconds in medians.items() if seconds < QUICK]


def tables(results):
    """All tables of the page, by name."""
    return {
        "accuracies": scores_table(results, [n for n in results.sets if not results.numbers[n]]),
        "errors": scores_table(results, [n for n in results.sets if results.numbers[n]]),
        "ranks": ranks_table(results),
        "differences": differences_table(results),
        "seconds": seconds_table(results),
    }


def scores_table(results, names):
    """The published split, and the mean over splits with its standard error; the best are bold."""
    lines = [["", *results.methods]]
    for name in names:
        unit, digits = 1.0 if results.numbers[name] else 100.0, results.digits(name)
        scores = {m: unit * values for m, values in results.scores[name].items()}
        cells = dict.fromkeys(results.methods, "–")
        sign = -1 if results.numbers[name] else 1
        best = max(sign * values.mean() for values in scores.values())
        for method, values in scores.items():
            mean = f"{values.mean():.{digits}f}"
            if sign * values.mean() >= best - 1e-9:
                mean = f"**{mean}**"
            error = f"{standard_error(values):.{digits}f}"
            cells[method] = f"{values[0]:.{digits}f} ({mean} ± {error})"
        lines.append([name, *cells.values()])
    return markdown(lines)


def ranks_table(results):
    """Mean ranks by mean error: among all methods, and among those that fit quickly."""
    quick = [m for m in results.quick() if m not in BY_DEFAULT]
    columns = {
        "among all": mean_ranks(results, [m for m in results.methods if m not in BY_DEFAULT]),
        "among those that fit in under a second": mean_ranks(results, quick),
    }
    for instead in BY_DEFAULT:
        methods = [instead if m == ATTENTION else m for m in quick]
        columns[f"the same with the {instead} for the recipe"] = mean_ranks(results, methods)
    lines = [["", *(f"{name}, {n_sets} sets" for name, (_, n_sets) in columns.items())]]
    for method in results.methods:
        found = [ranks.get(method) for ranks, _ in columns.values()]
        lines.append([method, *("–" if mean is None else f"{mean:.2f}" for mean in found)])
    return markdown(lines)


def mean_ranks(results, methods):
    """The mean rank of each of the methods over the sets all of them ran on, and their number."""
    ranks = []
    for name in results.sets:
        if all(method in results.scores[name] for method in methods):
            means = np.array([results.losses(name, m).mean() for m in methods]).round(12)
            ranks.append([np.sum(means < mean) + (np.sum(means == mean) + 1) / 2 for mean in means])
    return dict(zip(methods, np.mean(ranks, axis=0), strict=True)), len(ranks)


def differences_table(results):
    """Error of the attention recipe minus that of ridge on summaries, over the same splits."""
    lines = [["", "difference of errors", "standard errors"]]
    for name in results.sets:
        both = (results.losses(name, ATTENTION), results.losses(name, SUMMARIES))
        difference = both[0] - both[1]
        error = standard_error(difference)
        digits, unit = results.digits(name), "" if results.numbers[name] else " %"
        ratio = difference.mean() / error if error else 0.0
        words = f"{difference.mean():+.{digits}f} ± {error:.{digits}f}{unit}"
        lines.append([name, words, f"{ratio:+.1f}"])
    return markdown(lines)


def seconds_table(results):
    """Seconds to fit, and to predict the test set, medians over splits."""
    lines = [["", *results.methods]]
    for name in results.sets:
        cells = [
            f"{_seconds(results.fit[name][m])} + {_seconds(results.predict[name][m])}"
            if m in results.fit[name]
            else "–"
            for m in results.methods
        ]
        lines.append([name, *cells])
    return markdown(lines)


def standard_error(values):
    """Of the mean."""
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


def markdown(lines):
    """A table of cells."""
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([rows[0], "|" + "---|" * len(lines[0]), *rows[1:]])


def with_tables(page, made):
    """The text of the page, each table put between its two comments."""
    for name, table in made.items():
        block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if len(block.findall(page)) != 1:
            raise ValueError(f"the page must hold <!-- {name} --> and <!-- end of {name} --> once.")
        page = block.sub(lambda found, table=table: f"{found[1]}\n{table}\n\n{found[2]}", page)
    return page


def main():
    """Print the tables, or write them into the page."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--results", type=Path, default=RESULTS)
    arguments.add_argument("--write", action="store_true")
    chosen = arguments.parse_args()
    made = tables(Results(json.loads(chosen.results.read_text())["rows"]))
    if chosen.write:
        PAGE.write_text(with_tables(PAGE.read_text(), made))
    else:
        print("\n\n".join(f"{name}\n{table}" for name, table in made.items()))


def _of(rows, name, method):
    found = [row for row in rows if (row["data"], row["method"]) == (name, method)]
    return sorted(found, key=lambda row: row["split"])


def _seconds(values):
    middle = float(np.median(values))
    return f"{middle:.2f}" if middle < 9.95 else f"{middle:.0f}"


if __name__ == "__main__":
    main()
