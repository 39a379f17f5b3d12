"""Importing one family of estimators imports no other."""

import subprocess
import sys
from pkgutil import iter_modules

import pytest

import kalvi.estimators

FAMILIES = [found.name for found in iter_modules(kalvi.estimators.__path__) if found.ispkg]
SAID = "import sys, {module}; print(*(name for name in sys.modules if name.startswith('kalvi.')))"


def modules_after(module: str) -> set[str]:
    """The modules of kalvi that a fresh process has after it has imported one."""
    said = SAID.format(module=module)
    found = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def families_in(modules: set[str]) -> set[str]:
    return {family for family in FAMILIES if f"kalvi.estimators.{family}" in modules}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_imports_no_other(family):
    assert families_in(modules_after(f"kalvi.estimators.{family}")) == {family}


def test_the_package_itself_imports_nothing():
    assert modules_after("kalvi.estimators") == {"kalvi.estimators"}


def test_there_are_families():
    assert {"gaussian_process", "neural", "factor_analysis", "binary_factorization"} <= set(
        FAMILIES
    )
