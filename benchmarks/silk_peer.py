"""The document's author's own code (github jacksonloper/silkfactorization), where it can be made to run.

python -m benchmarks.silk_peer GIVEN.npz FOUND.npz, in an interpreter that finds TensorFlow and the package
(`PEERS`, by default build/peers):

    pip install --target build/peers tensorflow-cpu
    git clone https://github.com/jacksonloper/silkfactorization, its folder of that name into build/peers

The published repository lacks the module `kalman_parameters`, which all others import, so that nothing of
it runs. `KalmanParameters` and `SilkParameters` below take its place: they hold what the document's
section 9 lists, under the names the other modules use; with them the package's own tests pass. Its
`damping` is never passed on: every step has the optimal length. One sweep here is what its Trainer offers:
rows, columns, both priors, both rates.
"""

import os
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np

PEERS = Path(os.environ.get("PEERS", "build/peers"))
RATES = {"factor": 2, "bins": 10}


def available():
    """Whether the package and TensorFlow have been put there."""
    return all((PEERS / name).is_dir() for name in ("silkfactorization", "tensorflow"))


def fit(matrix, k, sweeps, folder, *, double=True):
    """Losses and seconds of `sweeps` sweeps on a matrix whose hidden entries are a corner."""
    given, found = Path(folder) / "given.npz", Path(folder) / "found.npz"
    rows, cols = matrix.hidden.any(axis=1), matrix.hidden.any(axis=0)
    np.savez(
        given, x=matrix.x, rows=rows, cols=cols, k=k, sweeps=sweeps, double=double,
        row_gaps=np.diff(matrix.row_locations), col_gaps=np.diff(matrix.col_locations),
    )  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(PEERS), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-W", "ignore", __file__, str(given), str(found)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    with np.load(found) as stored:
        return {name: stored[name] for name in stored.files}


def main(given, found):
    install()
    import scipy.sparse as sp
    from silkfactorization import training

    with np.load(given) as stored:
        g = {name: stored[name] for name in stored.files}
    data = sp.coo_matrix(g["x"].astype(float))
    args = data, int(g["k"]), g["row_gaps"], g["col_gaps"], g["rows"], g["cols"]
    np.random.seed(0)
    start = time.perf_counter()
    trainer = training.Trainer(data, 1.0, double_precision=bool(g["double"]))
    trainer.load_snapshot(training.make_initial_snapshot(*args))
    began, losses, seconds = time.perf_counter(), [], []
    trainer.losses = _Nothing()
    for _ in range(int(g["sweeps"])):
        sweep(trainer)
        seconds.append(time.perf_counter() - began)
        before = time.perf_counter()
        loss = _loss(trainer)
        losses.append((-loss.total_loss, loss.heldout_raw_loss))
        began += time.perf_counter() - before
    elbo, held_out = np.array(losses).T
    rates = {f"{s}_rate": getattr(trainer.sp, f"kp_{n}").rho.numpy() for s, n in SIDES.items()}
    ready = began - start
    np.savez(found, elbo=elbo, held_out=held_out, seconds=seconds, start=ready, **rates)


SIDES = {"row": "U", "col": "alpha"}


def sweep(trainer):
    """One of each of the updates; the losses that every update wants to log are left out of the time."""
    loss, trainer.loss = trainer.loss, types.SimpleNamespace
    for update in (trainer.update_row_variational, trainer.update_col_variational):
        update(doit=True)
    trainer.update_row_prior(doit=True)
    trainer.update_col_prior(doit=True)
    trainer.update_row_rhos(doit=True, **RATES)
    trainer.update_col_rhos(doit=True, **RATES)
    trainer.loss = loss


def _loss(trainer):
    return trainer.loss()


class _Nothing(list):
    """A list that keeps only the last entry."""

    def append(self, item):
        self[:] = [item]


def install():
    """The missing module, under its name."""
    import tensorflow as tf

    class KalmanParameters:
        def __init__(self, double):
            self.dtype = tf.float64 if double else tf.float32

        @classmethod
        def from_snapshot(cls, snapshot, double):
            self = cls(double)
            self.M = tf.convert_to_tensor(snapshot["M"], dtype=tf.bool)
            self.M_fl = tf.cast(self.M, self.dtype)
            self.ds = tf.convert_to_tensor(snapshot["ds"], dtype=self.dtype)
            self.update(**{name: snapshot[name] for name in NUMBERS})
            return self

        def update(self, **numbers):
            for name, value in numbers.items():
                setattr(self, name, tf.cast(tf.convert_to_tensor(value), self.dtype))
            self.length, self.Nk = map(int, self.muhat.shape)
            self.sigsq, self.sighatsq = self.sigma**2, self.sighat**2
            self.sigsqi = 1 / self.sigsq
            self.pi = tf.exp(-0.5 * self.rho[None] * self.ds[:, None])
            self.pisq = self.pi**2
            after, before = self.pisq[1:], self.pisq[:-1]
            self.diags = self.sigsqi * (1 - after * before) / ((1 - after) * (1 - before))
            self.cross = self.sigsqi * self.pi[1:-1] / (1 - self.pisq[1:-1])
            outer = self.muhat[:, :, None] * self.muhat[:, None, :]
            self.outer_hats = outer + tf.linalg.diag(self.sighatsq)

        def dump(self):
            return {name: getattr(self, name).numpy() for name in (*NUMBERS, "ds", "M")}

    class SilkParameters:
        def __init__(self, rows, cols):
            self.kp_U, self.kp_alpha = rows, cols

        @classmethod
        def from_snapshot(cls, snapshot, double):
            return cls(*(KalmanParameters.from_snapshot(snapshot[f"kp_{n}"], double)
                         for n in SIDES.values()))  # fmt: skip

        def transpose(self):
            return SilkParameters(self.kp_alpha, self.kp_U)

    module = types.ModuleType("silkfactorization.kalman_parameters")
    module.KalmanParameters, module.SilkParameters = KalmanParameters, SilkParameters
    sys.modules[module.__name__] = module
    package = types.ModuleType("silkfactorization")
    package.__path__ = [str(PEERS / "silkfactorization")]
    sys.modules["silkfactorization"] = package
    package.kalman_parameters = module


NUMBERS = ("muhat", "sighat", "mu", "sigma", "rho")


if __name__ == "__main__":
    main(*sys.argv[1:])
