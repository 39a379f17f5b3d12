"""Factor analysis of streams and tables.

model    the estimator that users see
fit      a fit: the state of the stream, the waiting rows, the distribution of a row
methods  the methods by name: the rule of each, its start, and its number of rows in a block
"""

from kalvi.estimators.factor_analysis.model import FactorAnalysis

__all__ = ["FactorAnalysis"]
