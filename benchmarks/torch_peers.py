"""Posteriors on a network by PyTorch packages, each run in a process of its own.

Every function takes standardised rows and gives means and variances of the labels of new rows. All
train the same network, one hidden layer of tanh units, with the same batches, epochs and cosine schedule.

laplace  laplace-torch: `marglik_training` (Immer et al. 2021): Adam(0.01), Kronecker-factored
         Gauss-Newton, the prior precision of each layer and the noise by the marginal likelihood.
ivon     ivon-opt: IVON(lr=0.1, ess=rows) as in its README, weight decay 1/rows (a standard normal
         prior), one sample a step; 30 draws to predict.
vi       posteriors: `vi.diag` as in its README, a standard normal prior, temperature 1/rows,
         Adam(0.01), but deviations that start at e⁻³: from its default, 1, it would need thousands of
         steps more; 30 draws to predict.

The last two learn the noise as one more parameter.
"""

import math
import time
import warnings

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

RATE, IVON_RATE, DRAWS = 1e-2, 0.1, 30
SMALL_TABLE, SMALL_BATCH, LARGE_BATCH = 5000, 128, 512


class Net(torch.nn.Module):
    """One hidden layer, and the logarithm of the noise's deviation."""

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(inputs, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1)
        )
        self.log_noise = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.layers(x), self.log_noise


def negative_log_likelihood(output, y):
    """A mean over the rows."""
    mean, log_noise = output
    square = ((y - mean) / log_noise.exp()) ** 2
    return (square / 2 + log_noise + math.log(2 * math.pi) / 2).mean()


def laplace(x, y, new, hidden, epochs):
    from laplace.marglik_training import marglik_training

    network, loader = Net(x.shape[1], hidden).layers, _loader(x, y)
    found = marglik_training(
        network,
        loader,
        likelihood="regression",
        hessian_structure="kron",
        n_epochs=epochs,
        optimizer_kwargs={"lr": RATE},
        scheduler_cls=torch.optim.lr_scheduler.CosineAnnealingLR,
        scheduler_kwargs={"T_max": epochs * len(loader)},
        lr_hyp=1e-1,
        marglik_frequency=1,
        prior_structure="layerwise",
        progress_bar=False,
    )[0]
    mean, var = (a.detach().ravel() for a in found(new))
    return mean, var + found.sigma_noise.item() ** 2


def ivon(x, y, new, hidden, epochs):
    import ivon as package

    network, loader = Net(x.shape[1], hidden), _loader(x, y)
    optimiser = package.IVON(
        network.parameters(), lr=IVON_RATE, ess=len(y), weight_decay=1 / len(y)
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * len(loader))
    for _ in range(epochs):
        for rows, labels in loader:
            with optimiser.sampled_params(train=True):
                optimiser.zero_grad()
                negative_log_likelihood(network(rows), labels).backward()
            optimiser.step()
            schedule.step()
    outputs = []
    with torch.no_grad():
        for _ in range(DRAWS):
            with optimiser.sampled_params():
                outputs.append(network(new))
    return _moments(outputs)


def vi(x, y, new, hidden, epochs):
    import posteriors
    import torchopt

    network, loader = Net(x.shape[1], hidden), _loader(x, y)
    params = {name: p.detach() for name, p in network.named_parameters()}

    def log_posterior(params, batch):
        output = torch.func.functional_call(network, params, (batch[0],))
        prior = posteriors.diag_normal_log_prob(params) / len(y)
        return -negative_log_likelihood(output, batch[1]) + prior, output[0]

    rate = lambda step: RATE * (1 + math.cos(math.pi * float(step) / (epochs * len(loader)))) / 2  # noqa: E731
    transform = posteriors.vi.diag.build(
        log_posterior, torchopt.adam(lr=rate), temperature=1 / len(y), init_log_sds=-3.0
    )
    state = transform.init(params)
    for _ in range(epochs):
        for batch in loader:
            state, _ = transform.update(state, tuple(batch))
    outputs = []
    with torch.no_grad():
        for _ in range(DRAWS):
            draw = posteriors.vi.diag.sample(state)
            outputs.append(torch.func.functional_call(network, draw, (new,)))
    return _moments(outputs)


METHODS = {"laplace-torch": laplace, "ivon-opt": ivon, "posteriors": vi}


def fit(method, x, y, new, hidden, epochs, seed):
    """Means and variances of new labels, CPU and wall seconds of fitting and predicting."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    x, y, new = (torch.tensor(a, dtype=torch.float32) for a in (x, y[:, None], new))
    torch.manual_seed(seed)
    METHODS[method](x[:64], y[:64], new[:2], hidden, 2)  # what a first fit sets up is not timed
    torch.manual_seed(seed)
    wall, cpu = time.perf_counter(), time.process_time()
    found = METHODS[method](x, y, new, hidden, epochs)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return *(np.asarray(a.detach(), float).ravel() for a in found), cpu, wall


def _loader(x, y):
    size = min(SMALL_BATCH if len(y) < SMALL_TABLE else LARGE_BATCH, len(y))
    return DataLoader(TensorDataset(x, y), batch_size=size, shuffle=True)


def _moments(outputs):
    """Of the mixture of normal predictions."""
    means = torch.stack([mean.ravel() for mean, _ in outputs])
    noise = torch.stack([(2 * log_noise).exp() for _, log_noise in outputs]).mean()
    return means.mean(dim=0), means.var(dim=0) + noise
