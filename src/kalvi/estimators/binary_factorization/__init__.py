"""Smooth binary matrix factorisation.

model        the estimator that users see
parameters   the valid values of its parameters, and their settings
locations    locations of rows and columns as users give them: any order, ties, dates, none
entries      binary matrices as users have them, read into signs and weights
sweeps       sweeps until they gain little, and the number of factors
fit          a fit: the factors of both sides, their predictions, and the bounds
predictions  probabilities of entries from the factors of rows and columns
"""

from kalvi.estimators.binary_factorization.model import BinaryFactorization

__all__ = ["BinaryFactorization"]
