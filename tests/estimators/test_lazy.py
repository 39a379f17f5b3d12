"""Tables whose rows are not computed yet are refused with the remedy."""

import numpy as np
import pytest

import kalvi


class LazyFrame:
    """As polars has it: a plan that only `collect` carries out."""

    def collect(self):
        return np.zeros((4, 2))


@pytest.mark.parametrize(
    "name",
    [
        "LogisticRegression",
        "LinearRegression",
        "PoissonRegression",
        "GaussianProcessRegressor",
        "NeuralClassifier",
        "FactorAnalysis",
        "BinaryFactorization",
    ],
)
def test_estimators_say_collect(name):
    alone = name in ("FactorAnalysis", "BinaryFactorization")
    y = () if alone else (np.array([0, 1, 0, 1]),)
    with pytest.raises(TypeError, match=r"X is a LazyFrame, whose rows .* give X\.collect\(\)\."):
        getattr(kalvi, name)().fit(LazyFrame(), *y)


def test_partial_fit_and_predictions_say_it_too():
    model = kalvi.LinearRegression().fit(np.eye(4), np.arange(4.0))
    for call in (model.predict, lambda x: model.partial_fit(x, np.zeros(4))):
        with pytest.raises(TypeError, match=r"give X\.collect\(\)\."):
            call(LazyFrame())
    with pytest.raises(TypeError, match=r"y is a LazyFrame"):
        kalvi.LinearRegression().fit(np.eye(4), LazyFrame())


def test_streams_read_files():
    with pytest.raises(TypeError, match=r"got LazyFrame\. Write a table to a file first"):
        getattr(kalvi.stream, "__wrapped__", kalvi.stream)(LazyFrame(), "y")  # types are checked
