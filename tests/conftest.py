"""Settings of the whole suite."""

import os
import sys

import pytest
from click.testing import CliRunner
from hypothesis import settings

from browser import chromium  # noqa: F401 - the fixture called browser
from polyattn.cli.main import cli

# A hundred processes are started; where bytecode is not kept, each compiles the library anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The first call of a BLAS routine takes long; time limits per example would only flicker.
# `make test` draws the same few examples in every run, `make test-slow` many and other ones.
settings.register_profile("fast", deadline=None, derandomize=True, max_examples=20, database=None)
settings.register_profile("long", deadline=None, max_examples=400)
settings.load_profile("fast")


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item):
    """Keep tests together that share what their module makes: each worker would make its own."""
    known = getattr(item, "fixturenames", ())
    made = item.session._fixturemanager.getfixturedefs
    shared = any(one.scope == "module" for name in known for one in made(name, item) or ())
    if shared and item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group(item.module.__name__))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a verb inside an empty folder; returns click's result."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        return CliRunner().invoke(cli, [str(argument) for argument in arguments])

    return call
