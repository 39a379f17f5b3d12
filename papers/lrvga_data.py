"""Rows of the L-RVGA paper's experiments (section 5), made as the authors' scripts make them.

The scripts differ from the text in three ways, and the figures follow the scripts:

    covariance  every row is scaled to norm 1 (text: normalised in mean), so that the covariance of the
                rows is no longer exactly W Wᵀ + diag ψ
    inputs      the eigenvalues k⁻ᶜ of eq. 49 are divided by their sum of squares, so that E|x|² is 3.2 at
                d = 100 and c = 1 (text: normalised in mean)
    labels      two Gaussian classes ± s/2 u with s = d^−a, the label being the class (text: one Gaussian
                and labels from the logistic model)

The numbers come from the scripts' own generator and seed. NumPy's singular vectors have no fixed sign, so
the rows are the same on every machine up to that, and the divergences up to a per cent or so.
"""

from typing import NamedTuple

import numpy as np
import scipy.stats

from papers import datasets

SEED = 1


class Rows(NamedTuple):
    """Inputs, and labels where there are any."""

    x: np.ndarray
    y: np.ndarray


def random(offset: int = 0) -> np.random.RandomState:
    """The scripts' generator, begun anew for every array."""
    return np.random.RandomState(SEED + offset)


def synthetic_covariance(d: int, p: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of N(0, W Wᵀ + diag ψ) for a random W and ψ, each scaled to norm 1; a (d, p) start."""
    noise, factor = random().uniform(size=d), random().standard_normal((d, p))
    numbers = random()
    x = numbers.multivariate_normal(np.zeros(d), np.diag(noise) + factor @ factor.T, n)
    return x / np.linalg.norm(x, axis=1, keepdims=True), numbers.standard_normal((d, p))


def real_inputs(name: str) -> np.ndarray:
    """The training inputs of a stored data set, divided by their mean norm and not centred."""
    if datasets.directory() is None:
        raise FileNotFoundError(f"{name} is read from disk; {datasets.VARIABLE} names the folder.")
    stored = datasets.load(name)
    x = stored["X"][stored["split"] == 0] if "split" in stored else stored["X"]
    return x / np.linalg.norm(x, axis=1).mean()


def input_covariance(d: int, decay: float) -> np.ndarray:
    """Mᵀ Diag(1, 2⁻ᶜ, …, d⁻ᶜ) M / Σ k⁻²ᶜ for a random rotation M."""
    spectrum = np.arange(1, d + 1.0) ** -decay
    spectrum /= np.sum(spectrum**2)
    rotation = scipy.stats.special_ortho_group.rvs(d, random_state=random())
    return rotation.T @ (spectrum[:, None] * rotation)


def linear_rows(d: int, n: int, decay: float = 1.0) -> Rows:
    """y = xᵀθ + noise of variance 1, |θ| = 1."""
    x = random().multivariate_normal(np.zeros(d), input_covariance(d, decay), n)
    theta = random().uniform(-1, 1, d)
    return Rows(x, x @ theta / np.linalg.norm(theta) + random().normal(size=n))


def logistic_rows(d: int, n: int, separation: float, decay: float = 1.0) -> Rows:
    """Two classes whose means are `separation` apart, in random order."""
    cov, centre = input_covariance(d, decay), random().uniform(size=d)
    centre *= separation / (2 * np.linalg.norm(centre))
    second = random(1)
    classes = [
        random().multivariate_normal(centre, cov, n // 2),
        second.multivariate_normal(-centre, cov, n // 2),
    ]
    order = second.permutation(2 * (n // 2))
    return Rows(np.concatenate(classes)[order], np.repeat([0.0, 1.0], n // 2)[order])
