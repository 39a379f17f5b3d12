"""Rows of the L-RVGA paper's experiments (section 5), made as the authors' scripts make them.

The scripts differ from the text in three ways, and the figures follow the scripts:

    covariance  every row is scaled to norm 1 (text: normalised in mean), so that the covariance of the
                rows is no longer exactly W Wᵀ + diag ψ
    inputs      the eigenvalues k⁻ᶜ of eq. 49 are divided by their sum of squares, so that E|x|² is 3.2 at
                d = 100 and c = 1 (text: normalised in mean)
    labels      two Gaussian classes ± s/2 u with s = d^−a, the label being the class (text: one Gaussian
                and labels from the logistic model)

The numbers come from the scripts' own generator and seed, and from other seeds for further draws. NumPy's
singular vectors have no fixed sign, so that seed 1 is another draw on another machine: at d = 1000 the
Laplace approximation of figure 3 has a divergence of 1450 here and of 1473 for the authors' code.
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


def random(seed: int = SEED) -> np.random.RandomState:
    """The scripts' generator, begun anew for every array."""
    return np.random.RandomState(seed)


def seeds(draws: int) -> list[int]:
    """The scripts' seed and others; a draw of two classes takes two in a row."""
    return [SEED + 10 * draw for draw in range(draws)]


def synthetic_covariance(d: int, p: int, n: int, seed: int = SEED) -> tuple[np.ndarray, np.ndarray]:
    """Rows of N(0, W Wᵀ + diag ψ) for a random W and ψ, each scaled to norm 1; a (d, p) start."""
    noise, factor = random(seed).uniform(size=d), random(seed).standard_normal((d, p))
    numbers = random(seed)
    x = numbers.multivariate_normal(np.zeros(d), np.diag(noise) + factor @ factor.T, n)
    return x / np.linalg.norm(x, axis=1, keepdims=True), numbers.standard_normal((d, p))


def real_inputs(name: str) -> np.ndarray:
    """The training inputs of a stored data set, divided by their mean norm and not centred."""
    if datasets.directory() is None:
        raise FileNotFoundError(f"{name} is read from disk; {datasets.VARIABLE} names the folder.")
    stored = datasets.load(name)
    x = stored["X"][stored["split"] == 0] if "split" in stored else stored["X"]
    return x / np.linalg.norm(x, axis=1).mean()


def input_covariance(d: int, decay: float, seed: int = SEED) -> np.ndarray:
    """Mᵀ Diag(1, 2⁻ᶜ, …, d⁻ᶜ) M / Σ k⁻²ᶜ for a random rotation M."""
    spectrum = np.arange(1, d + 1.0) ** -decay
    spectrum /= np.sum(spectrum**2)
    rotation = scipy.stats.special_ortho_group.rvs(d, random_state=random(seed))
    return rotation.T @ (spectrum[:, None] * rotation)


def linear_rows(d: int, n: int, decay: float = 1.0, seed: int = SEED) -> Rows:
    """y = xᵀθ + noise of variance 1, |θ| = 1."""
    x = random(seed).multivariate_normal(np.zeros(d), input_covariance(d, decay, seed), n)
    theta = random(seed).uniform(-1, 1, d)
    return Rows(x, x @ theta / np.linalg.norm(theta) + random(seed).normal(size=n))


def logistic_rows(d: int, n: int, separation: float, decay: float = 1.0, seed: int = SEED) -> Rows:
    """Two classes whose means are `separation` apart, in random order."""
    cov, centre = input_covariance(d, decay, seed), random(seed).uniform(size=d)
    centre *= separation / (2 * np.linalg.norm(centre))
    second = random(seed + 1)
    classes = [
        random(seed).multivariate_normal(centre, cov, n // 2),
        second.multivariate_normal(-centre, cov, n // 2),
    ]
    order = second.permutation(2 * (n // 2))
    return Rows(np.concatenate(classes)[order], np.repeat([0.0, 1.0], n // 2)[order])
