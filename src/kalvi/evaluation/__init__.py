"""Predictions of posteriors, and measures of how good they are.

metrics      bounds, log loss, calibration, coverage
intervals    intervals of y from the distribution of its predictor
predictions  means of y and the two kinds of its variance, for networks
psis         how far a posterior is from Gaussian, by importance sampling
"""
