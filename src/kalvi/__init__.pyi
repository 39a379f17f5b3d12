"""The names of `kalvi`, for type checkers and editors; they are loaded when first used."""

from kalvi.algorithms.base import Batch as Batch
from kalvi.algorithms.base import Rule as Rule
from kalvi.algorithms.general import FirstOrder as FirstOrder
from kalvi.algorithms.general import GaussHermite as GaussHermite
from kalvi.algorithms.general import GeneralRVGA as GeneralRVGA
from kalvi.algorithms.general import Sampling as Sampling
from kalvi.algorithms.general import SecondOrder as SecondOrder
from kalvi.algorithms.general import SigmaPoints as SigmaPoints
from kalvi.algorithms.general import ZerothOrder as ZerothOrder
from kalvi.algorithms.laplace import laplace as laplace
from kalvi.algorithms.rvga import RVGA as RVGA
from kalvi.algorithms.sites import EKF as EKF
from kalvi.algorithms.sites import QKF as QKF
from kalvi.algorithms.sites import Explicit as Explicit
from kalvi.algorithms.sites import Implicit as Implicit
from kalvi.algorithms.sites import MirrorProx as MirrorProx
from kalvi.algorithms.vga import vga as vga
from kalvi.checkpoints import load as load
from kalvi.checkpoints import save as save
from kalvi.custom import Custom as Custom
from kalvi.divergences import kl as kl
from kalvi.divergences import wasserstein as wasserstein
from kalvi.estimators import LinearRegression as LinearRegression
from kalvi.estimators import LogisticRegression as LogisticRegression
from kalvi.estimators import PoissonRegression as PoissonRegression
from kalvi.gaussians import Dense as Dense
from kalvi.gaussians import Diagonal as Diagonal
from kalvi.gaussians import Gaussian as Gaussian
from kalvi.gaussians import LowRankCovariance as LowRankCovariance
from kalvi.gaussians import LowRankPrecision as LowRankPrecision
from kalvi.likelihoods import Bernoulli as Bernoulli
from kalvi.likelihoods import Laplace as Laplace
from kalvi.likelihoods import Likelihood as Likelihood
from kalvi.likelihoods import Normal as Normal
from kalvi.likelihoods import Poisson as Poisson
from kalvi.likelihoods import Probit as Probit
from kalvi.likelihoods import StudentT as StudentT
from kalvi.logistic import InverseProbit as InverseProbit
from kalvi.logistic import ScaleMixture as ScaleMixture
from kalvi.run import fit as fit
from kalvi.run import resume as resume

__version__: str
