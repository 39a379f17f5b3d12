"""What every test shares: 64-bit JAX, no silent rank promotion, fixed seeds, real data if it is there."""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

# eight devices to spread parameters over; whatever asks for none has the first
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
)
os.environ["KALVI_CACHE"] = "off"  # tests leave the folder of the user alone

import hypothesis
import jax
import pytest


class Unchecked:
    """Imports the interpreter as it is, whose values have no annotated shapes.

    To check the types of a million small calls as well would take a sixth of all tests' time.
    """

    PACKAGE = "kalvi.numerics.interpreter"

    @classmethod
    def find_spec(cls, name: str, path=None, target=None) -> ModuleSpec | None:
        inside = name == cls.PACKAGE or name.startswith(f"{cls.PACKAGE}.")
        return PathFinder.find_spec(name, path, target) if inside else None


sys.meta_path.insert(0, Unchecked)

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
if cache := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
    jax.config.update("jax_compilation_cache_dir", cache)

hypothesis.settings.register_profile(
    "kalvi", derandomize=True, deadline=None, database=None, max_examples=25
)
hypothesis.settings.load_profile("kalvi")


@pytest.hookimpl(tryfirst=True)  # before the slow ones are left out
def pytest_collection_modifyitems(items):
    """A slow test says why it is slow."""
    for item in items:
        if not all(mark.kwargs.get("reason") for mark in item.iter_markers("slow")):
            raise pytest.UsageError(f"{item.nodeid} is slow; write pytest.mark.slow(reason=...).")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets."""
    folder = os.environ.get("KALVI_DATA")
    if not folder:
        pytest.skip("KALVI_DATA is not set: it names the folder of the real data sets")
    return Path(folder)


MAPPINGS = 15_000
"""Pieces of memory a process may map before it forgets what it compiled: Linux allows about 65,000."""


@pytest.fixture(autouse=True, scope="module")
def forget_compiled():
    """A process can hold only so many compiled programs; files share them until they are many."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > MAPPINGS:
        jax.clear_caches()
