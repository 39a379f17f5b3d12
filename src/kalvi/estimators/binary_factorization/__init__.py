"""Smooth binary matrix factorisation.

model         the estimator that users see
parameters    the valid values of its parameters, and their settings
locations     locations of rows and columns as users give them: any order, ties, dates, none
entries       binary matrices as users have them, read into signs and weights
placement     the choice between NumPy and compiled programs
starts        the best of several first guesses
sweeps        sweeps until they gain little, and the number of factors
fit           a fit: the factors of both sides, their predictions, and the bounds
learned       the attributes of a fitted model, under their public names
predictions   probabilities of entries from the factors of rows and columns
ideal_points  factors of rows or columns as a tidy table
"""

from kalvi.estimators.binary_factorization.model import BinaryFactorization

__all__ = ["BinaryFactorization"]
