"""The library beside its peers, as docs/benchmarks.md shows it: `python -m benchmarks --help`.

Importing this package pins the process to one core and every library in it to one thread, so it must
come before JAX and NumPy start theirs. BENCH_CORES=2 in the environment gives all of them two.
"""

import os

CORES = int(os.environ.get("BENCH_CORES", "1"))
"""How many cores the process and everything in it may use."""

ALL = os.sched_getaffinity(0)
"""The cores there are, for processes that are started from here."""

os.sched_setaffinity(0, sorted(ALL)[-CORES:])
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = str(CORES)
if CORES == 1:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
