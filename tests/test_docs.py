"""The documentation names everything, and what it shows is true."""

import doctest
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import kalvi

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
SCRIPTS = sorted((DOCS / "gallery").glob("plot_*.py"))
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(kalvi.__path__, "kalvi.")
    if not module.name.startswith("kalvi.experiments")
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples(page: Path, without: str | None = None) -> doctest.DocTest:
    """The `>>>` lines of a page; a fence ends the output above it, as a blank line does.

    Fenced blocks that import `without` are left out.
    """
    text = page.read_text("utf-8")
    blocks = text.split("```")
    if without is not None:
        blocks = [block for block in blocks if f">>> import {without}" not in block]
    lines = "\n```".join(blocks).split("\n")
    lines = ["" if line.startswith("```") else line for line in lines]
    return doctest.DocTestParser().get_doctest("\n".join(lines), {}, page.name, str(page), 0)


def check(test: doctest.DocTest) -> None:
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert not result.failed, "".join(report)


@pytest.mark.parametrize("name", kalvi.__all__)
def test_the_reference_has_every_public_name(name):
    reference = (DOCS / "api.md").read_text("utf-8")
    entries = {line.split(":: ")[-1] for line in reference.split("\n") if ".. auto" in line}
    assert f"kalvi.{name}" in entries or (
        name == "__version__" and "kalvi.__version__" in reference
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_the_pages_run(page):
    check(examples(page, without="torch"))


def test_the_examples_with_torch_run():
    pytest.importorskip("torch", reason="torch is not installed: its part of the page is not run")
    check(examples(DOCS / "own_networks.md"))


def test_the_start_has_examples():
    assert len(examples(DOCS / "index.md").examples) > 30


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_the_docstrings_run(name):
    module = importlib.import_module(name)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        if test.examples:
            check(test)


@pytest.mark.slow  # `make docs` runs them as well
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_gallery_runs(script, tmp_path):
    environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
