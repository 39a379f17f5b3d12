"""Gaussian processes of many rows through a few inducing points.

Hensman, Matthews & Ghahramani (2015), "Scalable variational Gaussian process classification". With inducing
points Z and L Lᵀ = k(Z, Z), the latents of the rows are

    f = μ(x) + φ(x)ᵀ w + e,    φ(x) = L⁻¹ k(Z, x),    w ~ N(0, I),    e ~ N(0, k(x, x) − |φ(x)|²),

and the bound keeps the prior distribution of e, independent of q(w), for each row:

    ELBO = Σ E[log p(yᵢ | fᵢ)] − KL(q(w) ‖ N(0, I)),   fᵢ ~ N(μᵢ + φᵢᵀm, φᵢᵀ S φᵢ + k(xᵢ, xᵢ) − |φᵢ|²).

This is a generalised linear model with as many features as inducing points and an `extra` variance for each
row. Its optimum is found from all rows at once by `vga` (`sparse_klprox`; memory N · M, time N · M² a pass)
or from minibatches by `KLProximal`, with features computed for each batch (`InducingFeatures`). For normal
noise its bound is Titsias' collapsed bound; if every row is an inducing point, it is that of `klprox`.

Independent noise of the rows (`kernels.White`) is part of e; only w is shared between rows.

In the coordinates w the prior does not depend on the hyperparameters. So at the optimum the gradient of
`sparse_elbo` with fixed q is that of the optimal bound (the envelope theorem).

The diagonal of k(Z, Z) is raised by a share `jitter`, which is needed if inducing points nearly coincide.
With it w stands for the values at Z plus a little noise. These are inducing variables like any other, so
the bound stays a bound.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float, Int

from kalvi.gaussians import Dense
from kalvi.gaussians.divergences import kl
from kalvi.kernels import Kernel
from kalvi.likelihoods import Likelihood
from kalvi.numerics import linalg
from kalvi.numerics.namespaces import AnyArray, Scalar, namespace_of
from kalvi.predictors import Linearised, OffsetLinear, Predictor
from kalvi.predictors.linear import OneLinear, offset_inputs
from kalvi.rules.rule import Batch, in_blocks, weigh_rows
from kalvi.rules.vga import TOLERANCE, VGA, informed_start, vga

PerRow = Float[Array, " n"]
Rows = Float[Array, "n i"]
Inducing = Float[Array, "m i"]
Root = Float[Array, "m m"]

ROWS_AT_ONCE = 2048
JITTER = 100.0
"""The jitter in units of the rounding error M · eps of a sum of M terms: 1e-11 for 500 points in
float64."""


class InducingChoice(NamedTuple):
    """The rows to use as inducing points, in the order of their choice."""

    rows: Int[Array, " m"]  # the first `count` of them
    count: Int[Array, ""]
    left: Scalar  # the share of the rows' common variance that these do not explain


def jitter(inducing: Inducing) -> float:
    """The share by which the diagonal of k(Z, Z) is raised."""
    return JITTER * inducing.shape[0] * float(jnp.finfo(inducing.dtype).eps)


def choose_inducing(kernel: Kernel, x: Rows, m: int) -> InducingChoice:
    """Choose up to m rows, each the one whose value is most uncertain given the earlier ones.

    This is the pivoted Cholesky factorisation of k(x, x), in time N · M² and memory N · M; with very many
    rows, a sample of them is as good. It stops early when no remaining row has a variance above the jitter.
    """
    variance = _shared_variance(kernel, x)
    least = jitter(x[:m]) * jnp.max(variance)

    def unfinished(carry) -> Array:
        return (carry[3] < m) & (jnp.max(carry[2]) > least)

    def pick(carry):
        factor, rows, rest, count = carry
        pivot = jnp.argmax(rest)
        column = kernel(x, x[pivot][None])[:, 0] - factor[:, pivot] @ factor
        column = column / jnp.sqrt(rest[pivot])
        rest = jnp.maximum(rest - column**2, 0).at[pivot].set(0)
        return factor.at[count].set(column), rows.at[count].set(pivot), rest, count + 1

    start = (jnp.zeros((m, x.shape[0]), x.dtype), jnp.zeros(m, int), variance, jnp.asarray(0))
    _, rows, rest, count = jax.lax.while_loop(unfinished, pick, start)
    total = jnp.sum(variance)
    return InducingChoice(rows, count, jnp.sum(rest) / jnp.where(total > 0, total, 1))


def _zero(x: Rows) -> PerRow:
    return jnp.zeros(x.shape[0], x.dtype)


def inducing_features(
    kernel: Kernel, inducing: Inducing, x: Rows
) -> tuple[Float[Array, "n m"], Float[Array, " n"]]:
    """φ of each row, and the variance of its latent given w."""
    return _features(kernel, inducing, _root(kernel, inducing), x)


def inducing_rows(kernel: Kernel, inducing: Inducing, x: Rows, mean: PerRow) -> Float[Array, "n k"]:
    """The inputs of `OffsetLinear` for the rows of a table, with prior mean `mean`."""
    phi, extra = inducing_features(kernel, inducing, x)
    return offset_inputs(phi, mean, extra)


class InducingFeatures(OneLinear):
    """The predictor of minibatches for `KLProximal`; features are computed for each batch and not kept.

    Parameters
    ----------
    kernel : Kernel
    inducing : array of shape (m, i)
    mean : function of inputs (n, i) that gives the prior mean (n,), default zero
    """

    kernel: Kernel
    inducing: Inducing
    root: Root
    mean: Callable

    def __init__(self, kernel: Kernel, inducing: Inducing, mean: Callable = _zero):
        self.inducing, self.mean = inducing, mean
        self.kernel = jax.tree.map(lambda a: jnp.asarray(a, inducing.dtype), kernel)
        self.root = _root(self.kernel, inducing)

    def values(self, theta: Float[Array, " m"], x: Rows) -> PerRow:
        return self.linearise(theta, x).mean

    def linearise(self, theta: Float[Array, " m"], x: Rows) -> Linearised:
        return OffsetLinear().linearise(theta, self.offset_inputs(x, self.mean(x)))

    def whitened(self, prior: Dense, x: Rows) -> tuple[Predictor, Float[Array, "n k"]]:
        return OffsetLinear().whitened(prior, self.offset_inputs(x, self.mean(x)))

    def offset_inputs(self, x: Rows, mean: PerRow) -> Float[Array, "n k"]:
        """The inputs of `OffsetLinear`: features, the prior mean, and the variance of e."""
        phi, extra = _features(self.kernel, self.inducing, self.root, x)
        return offset_inputs(phi, mean, extra)


def sparse_klprox(
    likelihood: Likelihood,
    kernel: Kernel,
    mean: PerRow,
    inducing: Inducing,
    batch: Batch,
    start: Dense | None = None,
    *,
    max_passes: int | Int[Array, ""] = 1000,
    tolerance: float | Scalar = TOLERANCE,
) -> VGA:
    """The Gaussian over w that maximises the bound; `mean` is the prior mean at the rows."""
    prior, predictor = standard_prior(inducing), OffsetLinear()
    rows = batch._replace(x=inducing_rows(kernel, inducing, batch.x, mean))
    return vga(
        likelihood,
        prior,
        rows,
        informed_start(likelihood, prior, rows, predictor) if start is None else start,
        predictor=predictor,
        max_passes=max_passes,
        tolerance=tolerance,
    )


def sparse_elbo(
    likelihood: Likelihood,
    kernel: Kernel,
    mean: PerRow,
    inducing: Inducing,
    batch: Batch,
    q: Dense,
) -> Scalar:
    """The bound at q(w), computed and differentiated one block of rows at a time."""
    root = _root(kernel, inducing)

    def fit(block) -> Scalar:
        x, y, mean, weight = block
        phi, extra = _features(kernel, inducing, root, x)
        law = mean + phi @ q.mean, q.marginal_variance(phi) + extra
        value = jax.vmap(lambda y, m, v: likelihood.expect(y, m, v).value)(y, *law)
        return jnp.sum(weigh_rows(weight, value))

    size = min(ROWS_AT_ONCE, len(batch.weight))
    blocks = *in_blocks((batch.x, batch.y, mean), size, "edge"), in_blocks(batch.weight, size)
    again = jax.checkpoint(fit)  # computes features again
    total = jax.lax.scan(lambda sum, block: (sum + again(block), None), 0 * q.mean[0], blocks)[0]
    return total - kl(q, standard_prior(inducing))


def sparse_predict(
    kernel: Kernel, mean: PerRow, inducing: Inducing, q: Dense, x: Rows
) -> tuple[PerRow, PerRow]:
    """The mean and variance of the latents of new rows, with prior mean `mean`."""
    root = _root(kernel, inducing)

    def law(block) -> tuple[PerRow, PerRow]:
        x, mean = block
        phi, extra = _features(kernel, inducing, root, x)
        return mean + phi @ q.mean, q.marginal_variance(phi) + extra

    means, variances = jax.lax.map(law, in_blocks((x, mean), min(ROWS_AT_ONCE, len(x)), "edge"))
    return means.reshape(-1)[: len(x)], variances.reshape(-1)[: len(x)]


def standard_prior(inducing: Float[AnyArray, "m i"]) -> Dense:
    """The prior of w."""
    xp, m = namespace_of(inducing), inducing.shape[0]
    return Dense.from_root(xp.zeros(m, inducing.dtype), xp.eye(m, dtype=inducing.dtype))


def _root(kernel: Kernel, inducing: Inducing) -> Root:
    """L, always with jitter, because points may nearly coincide when hyperparameters change."""
    cov = kernel(inducing, inducing)
    return linalg.cholesky(cov + jitter(inducing) * jnp.diag(jnp.diagonal(cov)))


def _features(
    kernel: Kernel, inducing: Inducing, root: Root, x: Rows
) -> tuple[Float[Array, "n m"], Float[Array, " n"]]:
    phi = jsl.solve_triangular(root, kernel(inducing, x), lower=True).T
    # below zero only by rounding
    return phi, jnp.maximum(kernel.diagonal(x) - jnp.sum(phi**2, axis=1), 0)


def _shared_variance(kernel: Kernel, x: Rows) -> PerRow:
    """The prior variance of each row, without noise."""
    return jax.vmap(lambda row: kernel(row[None], row[None])[0, 0])(x)
