"""Reproduction: the rows of an experiment with all that was said of them, as files."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from polyattn.files.atomic import write_atomically
from polyattn.files.fields import digest, entries, flag, listed, number, one_of, text
from polyattn_papers.reproduction.digests import (
    ENVIRONMENT,
    ROWS,
    read_object,
    require_intact,
    with_digest,
)
from polyattn_papers.reproduction.experiment import PROFILES, Experiment, Gate, Row

TABLE = entries({
    "name": text(1000), "title": text(), "reference": text(), "claim": text(),
    "findings": listed(text()),
    "gates": listed(entries({"claim": text(), "passed": flag, "seen": text()})),
    "passed": flag, "profile": one_of(PROFILES), "seconds": number(0),
    "surroundings": ENVIRONMENT, "rows": ROWS, "digest": digest,
})  # fmt: skip


@dataclass(frozen=True)
class Reproduction:
    """What came out of an experiment; ``surroundings`` are date, versions and machine."""

    experiment: Experiment = field(repr=False)
    profile: str
    rows: list[Row] = field(repr=False)
    findings: list[str]
    gates: list[Gate]
    seconds: float
    surroundings: dict[str, str]

    @property
    def passed(self) -> bool:
        """Whether every gate holds."""
        return all(gate.passed for gate in self.gates)

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain types: the content of table.json."""
        experiment = self.experiment
        return {
            "name": experiment.name,
            "title": experiment.title,
            "reference": experiment.reference,
            "claim": experiment.claim,
            "findings": self.findings,
            "gates": [asdict(gate) for gate in self.gates],
            "passed": self.passed,
            "profile": self.profile,
            "seconds": round(self.seconds, 1),
            "surroundings": self.surroundings,
            "rows": self.rows,
        }

    def write_table(self, folder: Path) -> None:
        """table.json with everything and its digest, table.csv with the rows."""
        text = json.dumps(with_digest(self.to_dict()), indent=1, allow_nan=False)
        table = io.StringIO()
        writer = csv.DictWriter(table, fieldnames=list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        for name, content in (("table.json", text), ("table.csv", table.getvalue())):
            write_atomically(folder / name, lambda file, c=content: file.write(c.encode()))  # type: ignore[misc]


def read_table(path: Path) -> dict[str, Any] | None:
    """The content of the table.json of an experiment, which has the name of its folder.

    Other things may be called so, too: None for the table of anything else.
    """
    remedy = "run its experiment again, or remove it"
    content = read_object(path, remedy)
    if content.get("name") != path.parent.name:
        return None
    return require_intact(content, path, TABLE, remedy)
