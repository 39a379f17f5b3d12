"""The parts of the benchmarks, in the order of the page."""

from typing import NamedTuple


class Part(NamedTuple):
    """A function of the module `benchmarks.<home>`, called with a report and whether to be quick."""

    title: str
    home: str
    function: str
    minutes: float  # within which it should end; a part that takes twice as long is ended
    cores: int = 1
    needs: str = ""  # a module of the library without which the part is left out


PARTS = {
    "logistic": Part("Streaming logistic regression", "logistic", "logistic", 3),
    "stability": Part("Large batches", "stability", "stability", 1),
    "streams": Part("Real streams", "streams", "streams", 4),
    "lowrank": Part("Low rank: seconds and memory", "lowrank", "lowrank", 4),
    "sparse": Part("Sparse rows", "sparse", "sparse", 4, cores=2),
    "accuracy": Part("Low rank: accuracy", "accuracy", "accuracy", 5),
    "factor": Part("Factor analysis", "factor", "factor", 2),
    "gp": Part("Gaussian processes", "gp", "gp", 4),
    "networks": Part("Networks", "networks", "networks", 7),
    "collectors": Part("Collecting a training run", "collectors", "collectors", 1),
    "silk": Part("Smooth binary factorisation", "silk", "silk", 5, cores=2),
    "tables": Part("Files and the command line", "tables", "tables", 2, cores=2),
    "distributed": Part(
        "Shards over workers", "distributed", "distributed", 6, 2, "kalvi.distributed"
    ),
    "latency": Part("Waiting times", "latency", "latency", 20, cores=2),
    "scaling": Part("Scaling curves", "scaling", "scaling", 4),
}
"""What `make bench` runs, one after the other, each in a process of its own."""

LONG = {
    "mnist": Part("MNIST", "mnist", "mnist", 60),
    "network_memory": Part("Memory of networks", "network_memory", "network_memory", 10),
}
"""Run by name only."""
