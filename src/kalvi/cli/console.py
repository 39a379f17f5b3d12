"""Common parts of all commands: errors, progress bars, JSON output, and writing of files."""

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
    """An error that the user can do something about, in one sentence."""

    exit_code = 2

    def __init__(self, message: str):
        super().__init__(_with_commands(" ".join(message.split())))


class Stopped(click.ClickException):
    """The user asked to stop."""

    exit_code = STOPPED

    def show(self, file: Any = None) -> None:
        click.echo(self.format_message(), err=True)


def _note(message: Any, category: type[Warning], *_: Any) -> None:
    """Print a warning in one line, if it is meant for users."""
    if issubclass(category, UserWarning) and not issubclass(category, FutureWarning):
        tqdm.write(f"note: {' '.join(str(message).split())}", file=sys.stderr)


def _nothing(*_: Any) -> None:
    pass


def _quiet() -> bool:
    """Whether the present command was given --quiet."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.params.get("quiet"))


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """Turn errors of values and files into one sentence and exit code 2, and warnings into a line each."""
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
def late_imports() -> Iterator[None]:
    """Wrap the imports that a command makes only when it runs, so that `kalvi --help` is fast.

    They are ordinary import statements, which the import contract and the type checker see. Ctrl-C ends
    them at once. If a package is missing, the error says what to install.
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
def complete_file(path: Path, mode: str = "wb") -> Iterator[Any]:
    """Open a file for writing, which appears at `path` only when complete; mode "w" is for text."""
    with late_imports():
        from kalvi.archives.container import replacing
    with replacing(path) as file:
        if "b" in mode:
            yield file
        else:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            yield text
            text.flush()
            text.detach()


def print_json(value: Any) -> None:
    """Print a JSON object; numbers that are not finite are written as null."""
    click.echo(json.dumps(_plain(value), ensure_ascii=False))


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines on standard output, or on standard error."""
    for line in lines:
        click.echo(line, err=err)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error, a line each."""
    print_lines((f"note: {note}" for note in notes), err=True)


@contextmanager
def row_bar(quiet: bool, total: int | None, start: int = 0) -> Iterator[Callable[..., None]]:
    """A progress bar; call it with the rows so far, the share of the bytes read, and text to show."""
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


def _with_commands(message: str) -> str:
    """The message; if it names options that this command lacks, it says which command has them."""
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
