"""Timings of the streaming rule against its peers, on one core: `python -m benchmarks --help`.

Importing this package pins the process to one core and every library in it to one thread, so it must
come before JAX and NumPy start theirs.
"""

import os

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
