"""Importing one family of estimators imports no other."""

import json
import subprocess
import sys
from pkgutil import iter_modules

import pytest

import kalvi.estimators

FAMILIES = [found.name for found in iter_modules(kalvi.estimators.__path__) if found.ispkg]
PACKAGE = "kalvi.estimators"
ALONE = """
import json, os, sys
import jax, jax.numpy, numpy, scipy.special, sklearn.base  # shared by all, and most of the time
for module in sys.argv[1:]:
    if os.fork() == 0:
        __import__(module)
        found = [name for name in sys.modules if name.startswith("kalvi.")]
        os.write(1, (json.dumps([module, found]) + "\\n").encode())
        os._exit(0)
    _, status = os.wait()
    assert status == 0, module
"""
"""Each module is imported by a copy of a process that has imported nothing of the library."""


@pytest.fixture(scope="module")
def imported() -> dict[str, set[str]]:
    """The modules of kalvi that a fresh process has after it has imported one, by that one."""
    modules = [PACKAGE, *(f"{PACKAGE}.{family}" for family in FAMILIES)]
    command = [sys.executable, "-W", "ignore", "-c", ALONE, *modules]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return {module: set(names) for module, names in map(json.loads, found.stdout.splitlines())}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_imports_no_other(family, imported):
    modules = imported[f"{PACKAGE}.{family}"]
    assert {other for other in FAMILIES if f"{PACKAGE}.{other}" in modules} == {family}


def test_the_package_itself_imports_nothing(imported):
    assert imported[PACKAGE] == {PACKAGE}


def test_there_are_families():
    assert {"gaussian_process", "neural", "factor_analysis", "binary_factorization"} <= set(
        FAMILIES
    )
