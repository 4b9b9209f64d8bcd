"""The command line: parse, call, print.  One file per verb, no algebra."""
