"""Smooth binary matrix factorisation.

model        the estimator that users see
parameters   which values its parameters may have, and what they mean for a fit
locations    locations of rows and columns as users give them: any order, ties, dates, none
entries      binary matrices as users have them, read into signs and weights
sweeps       sweeps until they gain little, and how many factors are needed
fit          a fit: the factors of both sides, what they predict, and the bound on the way
predictions  probabilities of entries from the factors of rows and columns
"""

from kalvi.estimators.binary_factorization.model import BinaryFactorization

__all__ = ["BinaryFactorization"]
