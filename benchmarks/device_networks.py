"""python -m benchmarks.device_networks: one pass over MNIST, and FA-SWAG, on this machine's accelerator.

The 784-128-10 tanh network of `digits`, float32. Needs JAX, Equinox, jaxtyping and, for FA-SWAG, Optax;
`KALVI_DATA` is the directory of mnist.npz. Prints accuracy, log-loss, calibration error, predictive
entropies (test rows, turned digits, noise) and seconds; the first chunk of the pass, which compiles, apart.
"""

import argparse
import time

import jax

from benchmarks.digits import (
    collected,
    digits,
    drawn_probabilities,
    linearised_probabilities,
    network,
    one_pass,
    point_probabilities,
    quality,
    trained,
)

BLOCK = 200
"""Rows that predictions hold the Jacobian of: about 0.8 GB."""


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.device_networks", description=__doc__
    )
    parser.add_argument("--rows", type=int, default=60_000, help="of the one pass")
    parser.add_argument(
        "--chunk", type=int, default=2000, help="rows that go to the device at once"
    )
    parser.add_argument(
        "--directions", type=int, help="rows of the Jacobian an observation has; all ten"
    )
    parser.add_argument("--tested", type=int, default=10_000)
    parser.add_argument("parts", nargs="*", default=["pass", "iterates"], metavar="pass | iterates")
    args = parser.parse_args()
    print(jax.devices()[0].device_kind, "JAX", jax.__version__, flush=True)
    rows = digits(args.tested)
    if "pass" in args.parts:
        _pass(rows, args.rows, args.chunk, args.directions)
    if "iterates" in args.parts:
        _iterates(rows)


def _pass(rows, count, chunk, directions):
    shape, model, theta = network()
    times = [time.perf_counter()]

    def after(done, state):
        times.append(time.perf_counter())
        if done == chunk or done % (5 * chunk) == 0:
            found = -float(state.log_evidence) / float(state.rows)
            print(
                f"{done} rows, {times[-1] - times[0]:.1f} s, log-loss before seen {found:.4f}",
                flush=True,
            )

    part = rows._replace(x=rows.x[:count], y=rows.y[:count])
    state = one_pass(model, shape, theta, part, chunk, after, directions)
    later = (times[-1] - times[1]) / max(len(times) - 2, 1) / chunk
    print(
        f"one pass: {times[-1] - times[0]:.1f} s, {1e3 * later:.3f} ms a row after the first chunk"
    )
    q = state.posterior
    print("  mean", quality(lambda x: point_probabilities(model, q.mean, x), rows))
    start = time.perf_counter()
    print("  linearised", quality(lambda x: linearised_probabilities(model, q, x, BLOCK), rows))
    print(f"  predictions took {time.perf_counter() - start:.1f} s", flush=True)


def _iterates(rows):
    _, model, theta = network()
    start = time.perf_counter()
    rule, point = trained(model, theta, rows)
    print(f"Adam: {time.perf_counter() - start:.1f} s")
    print("  point", quality(lambda x: point_probabilities(model, point, x), rows), flush=True)
    for name in ("swag", "fa"):
        start = time.perf_counter()
        found = collected(rule, point, rows, (name,))[0][name]
        print(f"{name}: {time.perf_counter() - start:.1f} s")
        print(
            "  ensemble",
            quality(lambda x, q=found: drawn_probabilities(model, q, x), rows),
            flush=True,
        )


if __name__ == "__main__":
    main()
