"""python laplace_peer.py rows.npz told.json: one Laplace approximation by laplace-torch.

Needs `pip install torch laplace-torch` (tried with 2.15.0 and 0.3), in any environment; BENCH_TORCH names
its Python. Immer et al. (2021): Adam, Kronecker-factored Gauss-Newton, and a gradient step of the prior
precisions of the layers and of the noise by the marginal likelihood after every epoch. Inputs and targets
come standardised.
"""

import json
import sys
import time
import warnings

import numpy as np
import torch
from laplace.marglik_training import marglik_training
from torch.utils.data import DataLoader, TensorDataset

RATE, HYPER_RATE = 1e-2, 1e-1
SMALL_TABLE, SMALL_BATCH, LARGE_BATCH = 5000, 128, 512


def fit(x, y, hidden, epochs, seed):
    """The trained approximation of the best marginal likelihood."""
    torch.manual_seed(seed)
    network = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1)
    )
    size = min(SMALL_BATCH if len(y) < SMALL_TABLE else LARGE_BATCH, len(y))
    loader = DataLoader(TensorDataset(x, y), batch_size=size, shuffle=True)
    return marglik_training(
        network,
        loader,
        likelihood="regression",
        hessian_structure="kron",
        n_epochs=epochs,
        optimizer_kwargs={"lr": RATE},
        scheduler_cls=torch.optim.lr_scheduler.CosineAnnealingLR,
        scheduler_kwargs={"T_max": epochs * len(loader)},
        lr_hyp=HYPER_RATE,
        marglik_frequency=1,
        prior_structure="layerwise",
        progress_bar=False,
    )[0]


def main(rows, told):
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    given = np.load(rows)
    x, y, new = (torch.tensor(given[name], dtype=torch.float32) for name in ("x", "y", "new"))
    hidden, epochs, seed = (int(given[name]) for name in ("hidden", "epochs", "seed"))
    fit(x[:64], y[:64, None], hidden, 2, seed)  # what a first fit sets up is not timed
    wall, cpu = time.perf_counter(), time.process_time()
    found = fit(x, y[:, None], hidden, epochs, seed)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    mean, var = (np.asarray(a.detach(), float).ravel() for a in found(new))
    var = var + found.sigma_noise.item() ** 2
    with open(told, "w") as file:
        json.dump({"mean": mean.tolist(), "var": var.tolist(), "cpu": cpu, "wall": wall}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
