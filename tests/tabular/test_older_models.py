"""Models of all kinds that the commands of an older version wrote: they are read and predict as before.

The files were written by commit 5c03c9e, when models with a target were all of one class, from the rows of
`few.csv` and rows like them; `answers.json` has what was predicted for the first three then.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import kalvi
from kalvi.archives import container

FILES = Path(__file__).parent / "files"
ANSWERS = json.loads((FILES / "answers.json").read_text())
CLASSES = {
    "counts": "kalvi.tabular.linear:PoissonRegressionModel",
    "process": "kalvi.tabular.gaussian_process:GaussianProcessModel",
    "network": "kalvi.tabular.neural:NeuralModel",
    "factors": "kalvi.tabular.factor_analysis:FactorModel",
    "matrix": "kalvi.tabular.binary_matrix:MatrixModel",
}


@pytest.mark.parametrize("name", CLASSES)
def test_it_predicts_what_it_predicted(name, tmp_path):
    kalvi.save(tmp_path / "again.kalvi", kalvi.load(FILES / f"{name}.kalvi"))
    structure = container.read_texts(tmp_path / "again.kalvi")["structure"]
    assert json.loads(structure)[1] == CLASSES[name]
    model = kalvi.load(tmp_path / "again.kalvi")
    table = model.predict_table() if name == "matrix" else model.predict_table(FILES / "few.csv")
    assert set(table.column_names) == set(ANSWERS[name])
    for column, expected in ANSWERS[name].items():
        found = table[column].to_pylist()[:3]
        if isinstance(expected[0], str):
            assert found == expected
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_kind_that_no_version_had(tmp_path):
    kept, arrays = container.read(FILES / "counts.kalvi")
    texts = {name: text for name, text in kept.items() if name != "sha256"}
    texts["structure"] = texts["structure"].replace('"model": "poisson"', '"model": "probit"', 1)
    container.write(tmp_path / "bad.kalvi", arrays, texts)
    with pytest.raises(ValueError, match="not a class that a file may hold"):
        kalvi.load(tmp_path / "bad.kalvi")
