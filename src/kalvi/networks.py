"""Networks: functions of a tree of parameters as predictors, and posteriors from your own training
loops."""

from kalvi.collectors import Collector
from kalvi.numerics.pytrees import Flattener
from kalvi.predictors.models import LogLikelihood, Model
from kalvi.predictors.networks import Network, Perceptron, make_network

__all__ = [
    "Collector",
    "Flattener",
    "LogLikelihood",
    "Model",
    "Network",
    "Perceptron",
    "make_network",
]
