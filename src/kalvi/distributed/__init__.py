"""Rows that lie in many places: each place learns from its own, and the posteriors become one.

    fit            the whole of it on Dask: arrays, data frames or bags, on a cluster or on this machine
    Learn          the first pass: begin, add a batch, join two, finish; for Spark, Ray or anything else
    Refinement     further passes that remove the error of the first, by the same verbs

See `distributed.passes` for what is exact.
"""

from kalvi.distributed.cluster import fit
from kalvi.distributed.passes import Learn, Pass, Refinement, Visit, tree

__all__ = ["Learn", "Pass", "Refinement", "Visit", "fit", "tree"]
