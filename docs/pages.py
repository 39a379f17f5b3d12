"""Runs the code blocks of pages: `python docs/pages.py docs/start.md ...`; only kalvi is needed.

A page runs from top to bottom in an empty folder of its own. Blocks of `python` with `>>>` must print what
the page shows; those without are executed; blocks of `sh` are commands that must succeed. A block without
a language is not run. Beside the page lie the made-up files of `rows.py`, which the commands read.
"""

import contextlib
import doctest
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
OPTIONAL = ("torch", "ray", "pyspark")
"""Packages without which their blocks are left out, because they are large."""
COMMANDS = "kalvi "
"""Pages whose commands read files need those of `rows.py`."""


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line where it begins."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    found = []
    for match in FENCE.finditer(text):
        indent, language, body = match.groups()
        lines = [line.removeprefix(indent) for line in body.split("\n")]
        found.append(Block(language, "\n".join(lines), text[: match.start(3)].count("\n")))
    return found


def missing(block: Block) -> str | None:
    """The optional package that a block imports and that is not installed."""
    return next(
        (
            name
            for name in OPTIONAL
            if re.search(rf"^(>>> )?(import|from) {name}\b", block.text, re.MULTILINE)
            and importlib.util.find_spec(name) is None
        ),
        None,
    )


def run(page: Path) -> int:
    """Run the blocks of a page; how many there were. A failure is an AssertionError that shows it."""
    namespace: dict = {"__name__": "__main__"}
    done = 0
    with _empty_folder(), _commands_found():
        if any(block.language == "sh" and COMMANDS in block.text for block in blocks(page)):
            _lay_out()
        for block in blocks(page):
            if block.language not in ("python", "sh") or missing(block):
                continue
            if block.language == "sh":
                _command(block, page)
            elif block.text.startswith(">>>"):
                _doctest(block, page, namespace)
            else:
                _execute(block.text, page.name, block.line, namespace)
            done += 1
    return done


def _lay_out() -> None:
    """The made-up files, and the script that writes them where the README calls it."""
    maker = Path(__file__).with_name("rows.py")
    runpy.run_path(str(maker))["write"]()
    Path("docs").mkdir()
    shutil.copy(maker, "docs")


def _doctest(block: Block, page: Path, namespace: dict) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, {}, page.name, str(page), block.line)
    test.globs = namespace
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(
        test, out=report.append, clear_globs=False
    )
    assert not result.failed, "".join(report)


def _execute(source: str, name: str, line: int, namespace: dict) -> None:
    """A block as a file: errors name the line of the page."""
    exec(compile("\n" * line + source, name, "exec"), namespace)


def _command(block: Block, page: Path) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    said = f"{page.name}, line {block.line + 1}:\n{block.text}{done.stdout}{done.stderr}"
    assert done.returncode == 0, said


@contextlib.contextmanager
def _empty_folder() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield


@contextlib.contextmanager
def _commands_found() -> Iterator[None]:
    """`kalvi` and `python` are those of this environment, also when it is not activated."""
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        count = run(Path(argument).resolve())
        print(f"{argument}: {count} blocks ran")
