"""The kinds of models that `kalvi fit` can fit, by their names."""

from kalvi.readers.source import Source
from kalvi.tabular.choices import Choices, likely_model
from kalvi.tabular.gaussian_process import GaussianProcessModel
from kalvi.tabular.linear import (
    LinearRegressionModel,
    LogisticRegressionModel,
    PoissonRegressionModel,
)
from kalvi.tabular.neural import NeuralModel
from kalvi.tabular.supervised import SupervisedModel

KINDS: dict[str, type[SupervisedModel]] = {
    kind.MODEL: kind
    for kind in (
        LogisticRegressionModel,
        LinearRegressionModel,
        PoissonRegressionModel,
        GaussianProcessModel,
        NeuralModel,
    )
}


def new_model(source: Source, choices: Choices) -> SupervisedModel:
    """A model before its first row, of the kind that the user chose or that suits the target."""
    for role, name in (
        ("target", choices.target),
        ("weight", choices.weight),
        ("time", choices.time),
    ):
        if name is not None and name not in source.sample.column_names:
            raise ValueError(
                f"{source.files[0]} has no column '{name}' for the {role}; "
                f"it has {', '.join(source.sample.column_names[:30])}."
            )
    model = choices.model or likely_model(source.sample[choices.target])
    return KINDS[model].begin(source, choices)
