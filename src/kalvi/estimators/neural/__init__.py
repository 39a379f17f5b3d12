"""Neural networks with a posterior over their parameters.

models      the estimators that users see: regression and classification
estimator   what they share: parameters and rows are checked, a fit is made, results are published
parameters  what the parameters mean, and which values they may have
targets     numbers and classes as a network learns them, and its predictions in their units
fit         a fit: the network, its posterior, the units of its inputs
methods     the methods by name
problem     a network to be trained, with its rows and batches
vifa        training in rounds with variational inference
swag        the Gaussian of the iterates of training, or a mixture of several
streaming   one pass over the rows
"""

from kalvi.estimators.neural.models import NeuralClassifier, NeuralRegressor

__all__ = ["NeuralClassifier", "NeuralRegressor"]
