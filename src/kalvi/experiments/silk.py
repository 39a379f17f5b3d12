"""Smooth binary factorisation (Loper 2019, "Scaleable inference for logistic Kalmans") put to the test.

The document has no experiments; these are ours. `FIGURES[name](quick)` gives the numbers of a figure or
table, what we say about it judged by those numbers, and the picture.
"""

from collections.abc import Callable

from kalvi.experiments.results import Result
from kalvi.experiments.silk_convergence import figure_3
from kalvi.experiments.silk_corner import figure_2
from kalvi.experiments.silk_real import figure_5, figure_6
from kalvi.experiments.silk_recovery import figure_1, table_1
from kalvi.experiments.silk_votes import figure_4

FIGURES: dict[int | str, Callable[[bool], Result]] = {
    "1": figure_1,
    "2": figure_2,
    "3": figure_3,
    "4": figure_4,
    "5": figure_5,
    "6": figure_6,
    "table1": table_1,
}
