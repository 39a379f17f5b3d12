"""What all commands share: errors of one sentence, progress, JSON for scripts, files written whole."""

import csv
import io
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from kalvi.system.interrupts import STOPPED, ending_at_once

NEEDS = {
    "pyarrow": "kalvi[files]",
    "matplotlib": "kalvi[plots]",
    "arviz_base": "kalvi[arviz]",
}


class Refusal(click.ClickException):
    """An error the user can do something about, in one sentence."""

    exit_code = 2

    def __init__(self, message: str):
        super().__init__(_naming_commands(" ".join(message.split())))


class Stopped(click.ClickException):
    """The user asked to stop, and nothing was lost."""

    exit_code = STOPPED

    def show(self, file: Any = None) -> None:
        click.echo(self.format_message(), err=True)


def _note(message: Any, category: type[Warning], *_: Any) -> None:
    """Print a warning that is meant for users in one line, and no other."""
    if issubclass(category, UserWarning) and not issubclass(category, FutureWarning):
        tqdm.write(f"note: {' '.join(str(message).split())}", file=sys.stderr)


def _nothing(*_: Any) -> None:
    pass


def _quiet() -> bool:
    """Whether the command that runs was given --quiet."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.params.get("quiet"))


@contextmanager
def refusing() -> Iterator[None]:
    """Bad values and file trouble become one sentence and exit code 2, warnings a line each."""
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.showwarning = _nothing if _quiet() else _note
            yield
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Refusal(f"{where}{error.strerror or error}") from error
    except MemoryError as error:
        raise Refusal(f"the machine has not enough memory for this: {error}") from error
    except ValueError as error:
        raise Refusal(str(error)) from error
    except KeyboardInterrupt as error:
        raise Stopped("stopped; nothing was written.") from error


@contextmanager
def loading() -> Iterator[None]:
    """Around the imports that a command makes when it runs, so that `kalvi --help` is quick.

    They are import statements like any other, which the import contract and the type checker see. Ctrl-C
    ends them at once, and a package that the plain installation lacks is named with what to install.
    """
    try:
        with ending_at_once():
            yield
    except ModuleNotFoundError as error:
        extra = NEEDS.get((error.name or "").split(".")[0], "kalvi[papers]")
        raise ValueError(
            f"this command needs {error.name}; install it with pip install '{extra}'."
        ) from error


@contextmanager
def written(path: Path, mode: str = "wb") -> Iterator[Any]:
    """A file that appears where `path` says when it is whole: of bytes, or of text with mode "w"."""
    with loading():
        from kalvi.archives.container import replacing
    with replacing(path) as file:
        if "b" in mode:
            yield file
        else:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            yield text
            text.flush()
            text.detach()


def write_table(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """A CSV file of the rows, moved into place when it is whole."""
    rows = list(rows)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    with written(path, "w") as file:
        file.write(text.getvalue())


def folder(path: Path) -> Path:
    """The folder, made if it was not there."""
    path.mkdir(parents=True, exist_ok=True)
    return path


def say_json(value: Any) -> None:
    """One JSON object on standard output; numbers that JSON has no word for are null."""
    click.echo(json.dumps(_plain(value), ensure_ascii=False))


def say_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Lines for a person, on standard output or beside it."""
    for line in lines:
        click.echo(line, err=err)


def say_notes(notes: Iterable[str]) -> None:
    """What a person should know, a line each."""
    say_lines((f"note: {note}" for note in notes), err=True)


@contextmanager
def row_bar(quiet: bool, total: int | None, start: int = 0) -> Iterator[Callable[..., None]]:
    """A progress bar of rows, told (rows, fraction of the bytes, what to show beside)."""
    with tqdm(
        total=total, initial=start, unit=" rows", unit_scale=True, disable=quiet, leave=False
    ) as bar:

        def tell(rows: int, fraction: float | None, beside: str = "") -> None:
            if total is None and fraction:
                bar.total = max(int(rows / fraction), rows)
            bar.set_postfix_str(beside, refresh=False)
            bar.update(rows - bar.n)

        yield tell


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "dtype"):  # a NumPy number
        return _plain(value.item())
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def _naming_commands(message: str) -> str:
    """The message, with the command to use for each option that it names and this command lacks."""
    context = click.get_current_context(silent=True)
    if context is None or context.parent is None:
        return message
    group = context.parent.command
    assert isinstance(group, click.Group)
    for option in dict.fromkeys(re.findall(r"(?<![\w-])--[a-z][a-z-]+", message)):
        homes = [name for name, command in group.commands.items() if option in _options(command)]
        if homes and option not in _options(context.command):
            message += f" ({option} is an option of kalvi {homes[0]}.)"
    return message


def _options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}
