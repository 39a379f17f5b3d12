"""What every test shares: 64-bit JAX, no silent rank promotion, fixed seeds, real data if it is there."""

import os
from pathlib import Path

import hypothesis
import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
if cache := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
    jax.config.update("jax_compilation_cache_dir", cache)

hypothesis.settings.register_profile(
    "kalvi", derandomize=True, deadline=None, database=None, max_examples=25
)
hypothesis.settings.load_profile("kalvi")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets."""
    folder = os.environ.get("KALVI_DATA")
    if not folder:
        pytest.skip("KALVI_DATA is not set: it names the folder of the real data sets")
    return Path(folder)


@pytest.fixture(autouse=True, scope="module")
def forget_compiled():
    """A process can hold only so many compiled programs; each file starts with none."""
    yield
    jax.clear_caches()
