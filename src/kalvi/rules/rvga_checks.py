"""Checks of `RVGA`: settings that contradict each other, and labels of the wrong shape, are refused."""

from typing import Any

from jaxtyping import Array, Float

from kalvi.likelihoods import Likelihood, Normal
from kalvi.predictors.networks import Network

SMALLEST = {"look_ahead": 0, "directions": 1, "samples": 1, "block_size": 1}
"""The smallest value of each setting that is a count."""


def check_settings(rule: Any) -> None:
    """Refuse an `RVGA` with settings that contradict each other."""
    for name, smallest in SMALLEST.items():
        value = getattr(rule, name)
        if value is not None and value < smallest:
            raise ValueError(f"{name} must be at least {smallest}; got {value}.")
    if rule.learn_noise and not rule.likelihood.noisy:
        raise TypeError(
            "learn_noise=True needs a likelihood with a noise variance, Normal or MultiNormal; "
            f"got {type(rule.likelihood).__name__}."
        )
    if rule.unit_noise and (rule.learn_noise or not isinstance(rule.likelihood, Normal)):
        raise TypeError(
            "unit_noise=True needs the likelihood Normal and learn_noise=False; got "
            f"{type(rule.likelihood).__name__} and learn_noise={rule.learn_noise}."
        )
    if rule.directions is not None and not isinstance(rule.predictor, Network):
        raise TypeError(
            f"directions= is for a Network; the predictor is {type(rule.predictor).__name__}. "
            "Leave it out."
        )
    if rule.directions is not None and (rule.samples is not None or rule.learn_noise):
        raise ValueError(
            "directions= is for classes and linearised blocks; use directions=None with samples and "
            "with an output that has noise."
        )
    if rule.predictor.linear and rule.look_ahead:
        raise ValueError(
            "look_ahead= is for networks; a linear predictor is the same wherever it is linearised. "
            "Leave it out."
        )


def check_labels(likelihood: Likelihood, y: Float[Array, "n *o"]) -> None:
    """Refuse labels of a shape that the likelihood does not have."""
    needed = likelihood.label_shape
    if needed is not None and y.shape[1:] != needed:
        each = f"{needed[0]} numbers" if needed else "one number"
        raise ValueError(f"y must have {each} a row; got shape {y.shape}.")
