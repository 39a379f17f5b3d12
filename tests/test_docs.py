"""The documentation names everything, and what it shows is true.

Examples are run by `make docs` (marked `docs`), because they cost minutes of compilation.
"""

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import kalvi

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FIRST = [ROOT / "README.md", DOCS / "start.md"]
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("tasks/*.md"), *DOCS.glob("reference/*.md")])
SCRIPTS = sorted((DOCS / "gallery").glob("plot_*.py"))
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(kalvi.__path__, "kalvi.")
    if not module.name.startswith("papers")
)
NOT_RUN = {"", "text", *(f"{{{name}}}" for name in ("eval-rst", "figure", "image", "include"))}
NOT_RUN |= {"{note}", "{toctree}", "{warning}"}


def name_of(page: Path) -> str:
    """The page with its folder: two folders may have a page of one name."""
    return f"{page.parent.name}/{page.stem}"


def script(path: Path):
    """A file of docs/ as a module; the folder is no package."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


pages = script(DOCS / "pages.py")


def test_the_reference_has_every_public_name():
    """Those of `kalvi` anywhere in it, those of a namespace on the page of that namespace."""
    entries = {page.stem: entries_of(page) for page in (DOCS / "reference").glob("*.md")}
    shown = {entry.rpartition(".")[2] for page in entries.values() for entry in page}
    assert {*kalvi.__all__} - {*kalvi._NAMESPACES, "__version__"} <= shown
    for space in kalvi._NAMESPACES:
        shown = {entry for entry in entries[space] if entry.startswith(f"kalvi.{space}.")}
        assert shown == {f"kalvi.{space}.{name}" for name in getattr(kalvi, space).__all__}


def entries_of(page: Path) -> set[str]:
    """What autodoc is asked to show on a page of the reference."""
    return set(re.findall(r"^\.\. auto\w+:: (\S+)$", page.read_text("utf-8"), flags=re.MULTILINE))


@pytest.mark.docs
@pytest.mark.parametrize("page", FIRST, ids=lambda page: page.name)
def test_what_a_newcomer_reads_runs(page):
    assert pages.run(page) >= 2


@pytest.mark.docs
@pytest.mark.parametrize("page", [p for p in PAGES if p not in FIRST], ids=name_of)
def test_the_examples_of_the_pages_run(page):
    assert pages.run(page) == sum(
        block.language in ("python", "sh") and not pages.missing(block)
        for block in pages.blocks(page)
    )


def test_every_task_has_an_example_and_is_on_the_map():
    index = (DOCS / "index.md").read_text("utf-8")
    for page in (DOCS / "tasks").glob("*.md"):
        assert any(block.language in ("python", "sh") for block in pages.blocks(page)), page
        assert index.count(f"tasks/{page.stem}") >= 2, page  # in the table and in the menu


@pytest.mark.parametrize("page", [*FIRST, *PAGES], ids=name_of)
def test_blocks_are_run_or_say_that_they_are_not(page):
    """Nothing that looks like Python slips through under another name."""
    for block in pages.blocks(page):
        assert block.language in {"python", "sh"} | NOT_RUN
        assert block.language == "python" or ">>>" not in block.text


def test_the_runner_catches_what_a_page_gets_wrong(tmp_path):
    page = tmp_path / "page.md"
    wrong = {
        "output": "```python\n>>> 1 + 1\n3\n```\n",
        "name": "```python\nprint(nowhere)\n```\n",
        "command": "```sh\nfalse\n```\n",
    }
    for text in wrong.values():
        page.write_text(text)
        with pytest.raises((AssertionError, NameError)):
            pages.run(page)
    page.write_text("```python\n>>> a = 1\n```\n\n  ```python\n  assert a == 1\n  ```\n")
    assert pages.run(page) == 2


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *PAGES]:
        text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            if not link.startswith("auto_gallery") and "/auto_gallery" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_simulated_tables_are_what_the_script_computes():
    simulate = script(ROOT / "benchmarks" / "simulate.py")
    shown = simulate.PAGE.read_text("utf-8").split(simulate.BEGIN)[1].split(simulate.END)[0]
    assert shown == simulate.tables()


def test_simulated_times_and_peaks_go_through_what_was_measured():
    simulate = script(ROOT / "benchmarks" / "simulate.py")
    start, slope = simulate.line([1.0, 3.0], [5.0, 9.0])
    assert (start, slope) == pytest.approx((3.0, 2.0))
    one, many = simulate.MACHINES[0], simulate.MACHINES[1]
    measured = simulate.points("core")[-1]
    assert one.seconds(measured["dim"], 1000) == 1000 * measured["seconds_per_row"]
    merging = many.seconds(10**6, 0)  # seven rounds of 88 MB at 10 GB/s, and of a merge
    rate = simulate.RATES["machines"]["core"]["merge_seconds_per_parameter"]
    assert merging == pytest.approx(7 * (88e6 / 10e9 + 1e6 * rate), rel=1e-6)
    assert one.seconds(10**9, 1) is None


@pytest.mark.docs
@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_the_docstrings_run(name):
    module = importlib.import_module(name)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        report: list[str] = []
        result = doctest.DocTestRunner(optionflags=pages.FLAGS).run(test, out=report.append)
        assert not result.failed, "".join(report)


@pytest.mark.docs
def test_the_example_over_devices_runs():
    words = [sys.executable, str(DOCS / "examples" / "hundred_million.py"), "--devices", "8"]
    plain = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(
        [*words, "--dim", "80000", "--blocks", "2"], env=plain, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"16 rows: log loss 0\.\d+, .* of W on each device \(8\)", done.stdout)


@pytest.mark.slow(reason="minutes of figures; `make docs` runs them as well")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_gallery_runs(script, tmp_path):
    environment = os.environ | {"MPLBACKEND": "Agg", "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
