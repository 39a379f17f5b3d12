import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kalvi


def test_import_is_light():
    heavy = "('sklearn', 'matplotlib', 'pyarrow', 'dask')"
    code = f"import sys, kalvi; print(*(m for m in {heavy} if m in sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == ""


def test_using_the_core_needs_no_scikit_learn():
    code = "import sys, kalvi; kalvi.RVGA(kalvi.Bernoulli()); print('sklearn' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"


@pytest.mark.parametrize("name", kalvi.__all__)
def test_every_public_name_exists(name):
    assert getattr(kalvi, name) is not None
    assert name in dir(kalvi)


def test_editors_see_the_same_names():
    stub = ast.parse((Path(kalvi.__file__).parent / "__init__.pyi").read_text())
    imported = [
        a.name for node in stub.body if isinstance(node, ast.ImportFrom) for a in node.names
    ]
    assert sorted([*imported, "__version__"]) == sorted(kalvi.__all__)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = kalvi.nonsense
