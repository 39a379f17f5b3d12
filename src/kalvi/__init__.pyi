"""The names of `kalvi`, for type checkers and editors; they are loaded when first used."""

from kalvi import distributed as distributed
from kalvi import drifts as drifts
from kalvi import kernels as kernels
from kalvi import klprox as klprox
from kalvi import likelihoods as likelihoods
from kalvi import metrics as metrics
from kalvi import networks as networks
from kalvi import predictors as predictors
from kalvi import projections as projections
from kalvi import rules as rules
from kalvi import schemes as schemes
from kalvi import sharding as sharding
from kalvi import silk as silk
from kalvi.archives.checkpoints import load as load
from kalvi.archives.checkpoints import save as save
from kalvi.estimators.binary_factorization import BinaryFactorization as BinaryFactorization
from kalvi.estimators.factor_analysis import FactorAnalysis as FactorAnalysis
from kalvi.estimators.gaussian_process import GaussianProcessClassifier as GaussianProcessClassifier
from kalvi.estimators.gaussian_process import GaussianProcessRegressor as GaussianProcessRegressor
from kalvi.estimators.linear import LinearRegression as LinearRegression
from kalvi.estimators.linear import LogisticRegression as LogisticRegression
from kalvi.estimators.linear import PoissonRegression as PoissonRegression
from kalvi.estimators.neural import NeuralClassifier as NeuralClassifier
from kalvi.estimators.neural import NeuralRegressor as NeuralRegressor
from kalvi.gaussians import Dense as Dense
from kalvi.gaussians import Diagonal as Diagonal
from kalvi.gaussians import Gaussian as Gaussian
from kalvi.gaussians import LowRankCovariance as LowRankCovariance
from kalvi.gaussians import LowRankPrecision as LowRankPrecision
from kalvi.gaussians.divergences import kl as kl
from kalvi.gaussians.merging import merge as merge
from kalvi.gaussians.mixture import Mixture as Mixture
from kalvi.likelihoods import Custom as Custom
from kalvi.rules import RVGA as RVGA
from kalvi.rules import Batch as Batch
from kalvi.rules import Rule as Rule
from kalvi.streams.run import fit as fit
from kalvi.streams.run import resume as resume
from kalvi.tabular.batches import stream as stream

__version__: str
