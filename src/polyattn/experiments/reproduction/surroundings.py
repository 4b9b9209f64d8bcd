"""When, with which versions and on what kind of machine something was measured."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata

PACKAGES = ("polyattn", "numpy", "scipy", "scikit-learn", "torch")


def surroundings() -> dict[str, str]:
    """Date (UTC), Python, the packages that compute, processor cores."""
    found = {"date": datetime.now(UTC).date().isoformat(), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return found | {"machine": f"{platform.machine()}, {cores} cores"}
