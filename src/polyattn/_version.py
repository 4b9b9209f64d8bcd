"""The version, in the one place that the build and the package both read."""

__version__ = "0.4.0.dev0"
