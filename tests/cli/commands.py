"""Commands run in this process, and the one sentence of a refusal."""

import json

from click.testing import CliRunner

from kalvi import cli

ROWS = 300
"""Rows of the table that the fixtures write."""


def run(*arguments, **how):
    return CliRunner().invoke(cli.main, [str(a) for a in arguments], **how)


def ok(*arguments, **how):
    result = run(*arguments, **how)
    assert result.exit_code == 0, result.output
    return result


def sentence(result, code=2):
    """The error a person sees, after checking that it is one sentence and nothing else happened."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    return line.removeprefix("Error: ")


def printed_json(result):
    """The JSON object that a command printed."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
