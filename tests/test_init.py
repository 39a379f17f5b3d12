import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import kalvi

NAMESPACES = sorted(kalvi._NAMESPACES)


def test_import_is_light():
    heavy = "('jax', 'sklearn', 'matplotlib', 'pyarrow', 'dask')"
    code = f"import sys, kalvi; print(*(m for m in {heavy} if m in sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == ""


FAMILIES = {
    "linear": "LogisticRegression",
    "gaussian_process": "GaussianProcessClassifier",
    "neural": "NeuralRegressor",
    "factor_analysis": "FactorAnalysis",
    "binary_factorization": "BinaryFactorization",
}
SELDOM = ("pandas", "scipy.stats", "dask", "distributed", "matplotlib", "pyarrow")
"""What takes long to import and few need: none of it comes with an estimator by our doing."""


BRING = """
import importlib, json, os, sys, jax, sklearn.linear_model, sklearn.gaussian_process.kernels
before = set(sys.modules)
for name in sys.argv[1:]:
    if os.fork() == 0:
        getattr(importlib.import_module("kalvi"), name)
        os.write(1, (json.dumps([name, sorted(set(sys.modules) - before)]) + "\\n").encode())
        os._exit(0)
    _, status = os.wait()
    assert status == 0, name
"""
"""Each name is imported by a copy of a process that has imported nothing of the library."""


@pytest.fixture(scope="module")
def brought() -> dict[str, list[str]]:
    """The modules that come with each estimator, beside JAX's and scikit-learn's."""
    command = [sys.executable, "-W", "ignore", "-c", BRING, *FAMILIES.values()]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(map(json.loads, found.stdout.splitlines()))


@pytest.mark.parametrize("family", FAMILIES)
def test_an_estimator_brings_little(family, brought):
    found = brought[FAMILIES[family]]
    others = [f"kalvi.estimators.{name}" for name in FAMILIES if name != family]
    unwanted = {*SELDOM, "kalvi.tabular", "kalvi.readers", *others}
    if family != "neural":
        unwanted |= {"optax", "jax.scipy.stats"}  # which Optax imports
    assert f"kalvi.estimators.{family}" in found
    assert [name for name in found if name in unwanted] == []


@pytest.mark.parametrize("collecting", [True, False])
def test_imports_leave_the_search_for_garbage_as_it_was(collecting):
    code = f"""
import gc
gc.enable() if {collecting} else gc.disable()
from kalvi import Dense
print(gc.isenabled())
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == str(collecting)


def test_using_the_core_needs_no_scikit_learn():
    code = "import sys, kalvi; kalvi.RVGA(kalvi.likelihoods.Bernoulli()); print('sklearn' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"


@pytest.mark.parametrize("name", kalvi.__all__)
def test_every_public_name_exists(name):
    assert getattr(kalvi, name) is not None
    assert name in dir(kalvi)


@pytest.mark.parametrize("package", [kalvi, kalvi.rules])
def test_editors_see_the_same_names(package):
    stub = ast.parse((Path(package.__file__).parent / "__init__.pyi").read_text())
    imported = {
        a.name for node in stub.body if isinstance(node, ast.ImportFrom) for a in node.names
    }
    assert imported == set(package.__all__) - {"__version__"}


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = kalvi.nonsense
    with pytest.raises(AttributeError, match=r"'kalvi\.rules' has no attribute 'nonsense'"):
        _ = kalvi.rules.nonsense


@pytest.mark.parametrize("name", NAMESPACES)
def test_namespaces_can_be_imported_and_name_what_they_hold(name):
    namespace = importlib.import_module(f"kalvi.{name}")
    assert namespace is getattr(kalvi, name)
    assert all(hasattr(namespace, public) for public in namespace.__all__)


@pytest.mark.parametrize("name", ["__init__", *NAMESPACES])
def test_no_two_names_differ_by_case_only(name):
    names = kalvi.__all__ if name == "__init__" else getattr(kalvi, name).__all__
    assert len({public.lower() for public in names}) == len(names)


@pytest.mark.parametrize(
    ("name", "homes"),
    [
        ("Bernoulli", "kalvi.likelihoods.Bernoulli"),
        ("VIFA", "kalvi.rules.VIFA"),
        ("Linear", "kalvi.kernels.Linear and kalvi.predictors.Linear"),
    ],
)
def test_a_name_of_a_namespace_is_refused_with_its_home(name, homes):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; there is {homes}$"):
        getattr(kalvi, name)
    assert not hasattr(kalvi, "_Linear")
