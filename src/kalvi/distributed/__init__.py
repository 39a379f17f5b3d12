"""Learning from rows in many places: each place learns from its own rows, and the posteriors are merged.

    fit            all of it on Dask: arrays, data frames or bags, on a cluster or on this machine
    Learn          the first pass: begin, add a batch, join two, finish; for Spark, Ray or anything else
    Refinement     further passes that remove the error of the first, with the same functions

See `distributed.passes` for what is exact.
"""

from kalvi.distributed.cluster import fit
from kalvi.distributed.passes import Learn, Pass, Refinement, Visit, tree

__all__ = ["Learn", "Pass", "Refinement", "Visit", "fit", "tree"]
