"""What the parameters of the neural estimators mean, and which values they refuse."""

from numbers import Real
from typing import Any

import numpy as np

from kalvi.estimators.neural_fits import FITS
from kalvi.predictors.networks import ACTIVATIONS

PARAMETERS = """hidden_sizes : tuple of int, default (50,)
        Units of the hidden layers; () is a linear model.
    activation : {"tanh", "relu", "gelu", "silu", "softplus", "sin"}, default "tanh"
    method : {"vifa", "swag", "multiswag", "lrvga"}, default "vifa"
        "vifa": training, then variational inference of the covariance, in rounds that also learn the
        prior precision of each layer and the noise. "swag": the Gaussian of the iterates of training at a
        constant rate. "multiswag": a mixture of several of those. "lrvga": one pass over the rows, which
        `partial_fit` can go on with.
    rank : "auto", int or None, default "auto"
        None keeps the full covariance, d² numbers; an integer d (rank + 2). "auto" is None up to 1500
        parameters and 20 beyond, and 20 for SWAG.
    epochs : "auto" or int, default "auto"
        Passes of the training; "auto" makes about 8000 steps, or 16000 with 5000 rows and more. Not used
        by "lrvga".
    batch_size : "auto" or int, default "auto"
        Rows of a training step; "auto" is 128, or 512 with 5000 rows and more.
    learning_rate : float, default 0.01
        Adam's; it falls to a hundredth along a cosine.
    prior_precision : "auto" or float, default "auto"
        Of the parameters of standardised data. "auto" learns one for each weight matrix and bias
        vector ("vifa"), takes the inputs of each layer ("lrvga") or 1 (SWAG).
    n_members : int, default 5
        Training runs of "multiswag".
    predictive : {"auto", "linearised", "ensemble"}, default "auto"
        How the posterior is averaged over: the network made linear at the mean, or draws of the
        parameters; "auto" is the first but for SWAG.
    n_draws : int, default 30
        Draws of an ensemble.
    dtype : {"auto", "float64", "float32"}, default "auto"
        "auto" is float64 for a full covariance and float32 otherwise.
    random_state : int, RandomState or None
    verbose : bool, default False
        Show a progress bar."""


def check_settings(given: dict[str, Any]) -> None:
    """Refuse parameters that mean nothing, with what was needed."""
    choices = {
        "activation": ACTIVATIONS,
        "method": FITS,
        "predictive": ("auto", "linearised", "ensemble"),
        "dtype": ("auto", "float64", "float32", np.float64, np.float32),
    }
    for name, allowed in choices.items():
        if given[name] not in list(allowed):
            names = ", ".join(str(choice) for choice in list(allowed)[:6])
            raise ValueError(f"{name} must be one of {names}; got {given[name]!r}.")
    sizes = given["hidden_sizes"]
    if not isinstance(sizes, tuple | list) or not all(_whole(h) for h in sizes):
        raise ValueError(f"hidden_sizes must be a tuple of positive integers; got {sizes!r}.")
    for name in ("epochs", "batch_size"):
        if given[name] != "auto" and not _whole(given[name]):
            raise ValueError(f"{name} must be 'auto' or a positive integer; got {given[name]!r}.")
    for name in ("n_members", "n_draws"):
        if not _whole(given[name]):
            raise ValueError(f"{name} must be a positive integer; got {given[name]!r}.")
    rank = given["rank"]
    if rank not in ("auto", None) and not (_whole(rank) and rank >= 2):
        raise ValueError(f"rank must be 'auto', None or an integer of at least 2; got {rank!r}.")
    for name in ("prior_precision", "noise_scale", "learning_rate"):
        value = given.get(name, "auto")
        if value == "auto" and name != "learning_rate":
            continue
        if not isinstance(value, Real) or not 0 < float(value) < np.inf:
            raise ValueError(f"{name} must be a positive number; got {value!r}.")


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)
