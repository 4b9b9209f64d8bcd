"""How commands end: JSON alone on stdout, or one line on stderr."""

import json


def parsed(result, code=0):
    """The JSON object on stdout, which must be all that is there."""
    assert result.exit_code == code, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


def refused(result, *words, code=1):
    """Ended by one line on stderr that contains the words; nothing on stdout, no traceback."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert isinstance(result.exception, SystemExit)
    assert ("Usage:" in result.stderr) == (code == 2)
    if code == 1:
        assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    for word in words:
        assert word in " ".join(result.stderr.split()), result.stderr
