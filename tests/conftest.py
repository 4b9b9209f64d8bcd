"""Settings of the whole suite."""

import os

from hypothesis import settings

from browser import chromium  # noqa: F401 - the fixture called browser

# The first call of a BLAS routine takes long; time limits per example would only flicker.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
