"""KL-proximal variational inference for generalised linear models and Gaussian processes.

Khan, Baqué, Fleuret & Fua (2015), "Kullback-Leibler proximal variational inference".
"""
