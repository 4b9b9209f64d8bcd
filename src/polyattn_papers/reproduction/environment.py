"""When, with which versions and on what kind of machine something was measured.

Files call it ``surroundings``.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata

PACKAGES = ("polyattn", "numpy", "scipy", "scikit-learn", "torch")


def environment() -> dict[str, str]:
    """Date (UTC), Python, the packages that compute, processor cores."""
    found = {"date": datetime.now(UTC).date().isoformat(), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return found | {"machine": f"{platform.machine()}, {cores} cores"}


def merge_environments(found: Sequence[dict[str, str]]) -> dict[str, str]:
    """Those of several measurements: what differs is listed, a date as the first and the last."""
    names = dict.fromkeys(name for one in found for name in one)
    values = {name: sorted({one[name] for one in found if name in one}) for name in names}
    return {
        name: " to ".join(dict.fromkeys((all_[0], all_[-1]))) if name == "date" else ", ".join(all_)
        for name, all_ in values.items()
    }
