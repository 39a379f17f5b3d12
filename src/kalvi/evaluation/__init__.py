"""What posteriors predict, and how good that is.

metrics      bounds, log loss, calibration, coverage
intervals    intervals of y from the law of its predictor
predictions  means of y and the two kinds of its variance, for networks
psis         how far a posterior is from Gaussian, by importance sampling
"""
