"""The command line: parse, call the public functions, print; no algebra."""
