"""The page on the architecture is true: its map, and the hops of its journeys."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys import JOURNEYS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
MOST_HOPS = {"partial-fit": 25, "kalvi-fit": 40}


def hops(journey: str) -> list[str]:
    """The functions that the page names for a journey."""
    heading = f"### {journey.replace('-', ' ').capitalize()}\n"
    section = PAGE.read_text("utf-8").split(heading)[1].split("\n#")[0]
    return re.findall(r"^1\. `([\w.]+)`", section, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def traced() -> dict[str, list[str]]:
    """The functions that each journey enters, in a process that has computed nothing before."""
    command = [sys.executable, "-m", "tests.journeys", *JOURNEYS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.parametrize("journey", JOURNEYS)
def test_a_journey_makes_the_hops_of_the_page_in_their_order(journey, traced):
    named = hops(journey)
    assert [name for name in traced[journey] if name in set(named)] == named
    assert 10 <= len(named) <= MOST_HOPS.get(journey, 25)


def test_the_map_is_what_the_imports_say():
    spec = importlib.util.spec_from_file_location("map", ROOT / "docs" / "map.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.IMAGE.read_text("utf-8") == script.draw(), "run: python docs/map.py"
