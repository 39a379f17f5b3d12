"""A hundred million parameters over all devices: python docs/examples/hundred_million.py [--devices 8].

Clicks with hashed features, the classical case of too many parameters: every row has a few places of 10⁸.
Each process makes only the columns of its own devices. On several hosts start the same program on each,
with --coordinator HOST:PORT --processes COUNT --process NUMBER.
"""

import argparse
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

import kalvi
from kalvi import sharding

ACTIVE, COMMON = 30, 1000
"""Common and rare places of a row, and common ones in all."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python docs/examples/hundred_million.py", description=__doc__
    )
    parser.add_argument(
        "--dim", type=int, default=10**8, help="parameters, a multiple of the devices"
    )
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--block", type=int, default=8, help="rows absorbed at once")
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--devices", type=int, help="virtual ones, where there is only a CPU")
    parser.add_argument("--coordinator", help="host:port of the first process")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--process", type=int, default=0)
    return parser.parse_args()


def clicks(d: int, b: int, blocks: int) -> Iterator[kalvi.Batch]:
    """Blocks of b rows: half of their places are common ones, and these decide."""
    rng = np.random.default_rng(0)
    common, effect = rng.choice(d, COMMON, replace=False), rng.normal(size=COMMON)
    for _ in range(blocks):
        which = rng.integers(0, COMMON, size=(b, ACTIVE))
        places = np.concatenate([common[which], rng.integers(0, d, size=(b, ACTIVE))], axis=1)
        logits = 3 * effect[which].sum(axis=1) / np.sqrt(ACTIVE)
        y = (rng.random(b) < 1 / (1 + np.exp(-logits))).astype("f4")
        x = sharding.columns(lambda part, at=places: own_columns(at, part[1].indices(d)), (b, d))
        yield kalvi.Batch(jax.block_until_ready(x), jnp.asarray(y), jnp.ones(b, "f4"))


def own_columns(places: np.ndarray, columns: tuple[int, int, int]) -> np.ndarray:
    """The columns of one device: ones at the places of each row."""
    first, last, _ = columns
    own = np.zeros((len(places), last - first), "f4")
    row, entry = np.nonzero((places >= first) & (places < last))
    own[row, places[row, entry] - first] = 1
    return own


def reported(batches: Iterator[kalvi.Batch], d: int, rank: int, b: int) -> None:
    """Learn from the batches, and say what each took."""
    rule, clock = kalvi.RVGA(kalvi.likelihoods.Bernoulli(), block_size=b), [0.0]

    def timed() -> Iterator[kalvi.Batch]:
        for batch in batches:
            clock[0] = time.perf_counter()
            yield batch

    def report(state):
        jax.block_until_ready(state)
        took, factor = time.perf_counter() - clock[0], state.posterior.precision.factor
        held = factor.addressable_shards[0].data.nbytes / 2**20
        print(
            f"{int(state.rows):5} rows: log loss {-float(state.log_evidence / state.rows):.4f}, "
            f"{took:.3f} s to absorb the block, {held:,.0f} MiB of W on each device "
            f"({sharding.device_count()})",
            flush=True,
        )

    prior = sharding.spread(
        lambda: kalvi.LowRankPrecision(
            jnp.zeros(d, "f4"), jnp.zeros((d, rank), "f4"), jnp.ones(d, "f4")
        )
    )
    kalvi.fit(rule, prior, timed(), after_block=report)


def main() -> None:
    args = arguments()
    if args.devices:
        jax.config.update("jax_num_cpu_devices", args.devices)
    if args.coordinator:
        jax.distributed.initialize(args.coordinator, args.processes, args.process)
    with sharding.over():
        batches = clicks(args.dim, args.block, args.blocks)
        reported(batches, args.dim, args.rank, args.block)


if __name__ == "__main__":
    main()
