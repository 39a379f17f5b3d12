"""Arguments and options that several commands have."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kalvi.readers import formats

DATA = click.argument("data", nargs=-1, required=True, metavar="DATA...")
FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(list(formats.FORMATS)),
    help="The format of DATA, if neither its name nor its first bytes tell.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
AGAIN = click.option("--again", is_flag=True, help="Learn files again that were learned before.")
QUIET = click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
AS = click.option(
    "--as",
    multiple=True,
    metavar="NAME=TYPE",
    help="The type of a column: number, category, time, text or drop; also number:1.234,5, time:%d/%m/%Y.",
)
WRITTEN = "The notation of a column, if DATA has another than MODEL: number:1.234,5, time:%d/%m/%Y."
COLUMNS = click.option(
    "--columns",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file with the types of columns: CSV with the columns name and type, or JSON.",
)
CHECKPOINTS = (
    click.option(
        "--checkpoint-rows",
        default=1_000_000,
        show_default=True,
        type=click.IntRange(1),
        help="The most rows between checkpoints.",
    ),
    click.option(
        "--checkpoint-seconds",
        default=30.0,
        show_default=True,
        type=click.FloatRange(0),
        help="The most seconds between checkpoints.",
    ),
)


def checkpoints(command: Any) -> Any:
    """The options of a command that writes checkpoints."""
    for option in CHECKPOINTS:
        command = option(command)
    return command


OUT = click.option(
    "--out", "-o", type=click.Path(path_type=Path), help="The model; DATA.kalvi if not given."
)
MODEL = click.argument("model", type=click.Path(path_type=Path))
REPLACE_MODEL = click.option("--force", is_flag=True, help="Replace a model that is there.")
REPLACE_FILE = click.option("--force", is_flag=True, help="Replace a file that is there.")
SET = click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Any other parameter."
)


def settings_of(settings: Sequence[str]) -> dict[str, Any]:
    """The parameters of --set NAME=VALUE; a value is JSON, or else a text."""
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes NAME=VALUE; got '{setting}'.")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found
