"""A hundred million parameters over all devices: python docs/examples/hundred_million.py [--devices 8].

Clicks with hashed features, the classical case of too many parameters: every row has a few places of 10⁸.
Each process makes only the columns of its own devices. On several hosts start the same program on each,
with --coordinator HOST:PORT --processes COUNT --process NUMBER.
"""

import argparse
import os
import time


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


def main() -> None:
    args = arguments()
    if args.devices:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={args.devices}"
    import jax
    import jax.numpy as jnp
    import numpy as np

    import kalvi
    from kalvi import sharding

    if args.coordinator:
        jax.distributed.initialize(args.coordinator, args.processes, args.process)
    d, b, active, clock = args.dim, args.block, 30, [0.0]
    rng = np.random.default_rng(0)
    common = rng.choice(d, 1000, replace=False)  # places that many rows share
    effect = rng.normal(size=1000)

    def clicks():
        """b rows: most of their places are common ones, and these decide."""
        which = rng.integers(0, 1000, size=(b, active))
        rare = rng.integers(0, d, size=(b, active))
        logits = effect[which].sum(axis=1) / np.sqrt(active)
        return common[which], rare, (rng.random(b) < 1 / (1 + np.exp(-3 * logits))).astype("f4")

    def block():
        places, rare, y = clicks()
        at = np.concatenate([places, rare], axis=1)

        def part(slices):
            first, last, _ = slices[1].indices(d)
            own = np.zeros((b, last - first), np.float32)
            row, entry = np.nonzero((at >= first) & (at < last))
            own[row, at[row, entry] - first] = 1
            return own

        x = jax.block_until_ready(sharding.columns(part, (b, d)))
        clock[0] = time.perf_counter()
        return kalvi.Batch(x, jnp.asarray(y), jnp.ones(b, "f4"))

    def report(state):
        jax.block_until_ready(state)
        took, factor = time.perf_counter() - clock[0], state.posterior.precision.factor
        held = factor.addressable_shards[0].data.nbytes / 2**20
        print(
            f"{int(state.rows):5} rows: log loss {-float(state.log_evidence / state.rows):.4f}, "
            f"{took:.3f} s to absorb the block, {held:,.0f} MiB of W on each device ({sharding.pieces()})",
            flush=True,
        )

    with sharding.over():
        prior = sharding.spread(
            lambda: kalvi.LowRankPrecision(
                jnp.zeros(d, "f4"), jnp.zeros((d, args.rank), "f4"), jnp.ones(d, "f4")
            )
        )
        rule = kalvi.RVGA(kalvi.Bernoulli(), block_size=b)
        kalvi.fit(rule, prior, (block() for _ in range(args.blocks)), after_block=report)


if __name__ == "__main__":
    main()
