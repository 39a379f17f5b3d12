"""Smooth binary factorisation (Loper 2019, "Scaleable inference for logistic Kalmans") put to the test.

The document has no experiments; these are ours. `FIGURES[name](quick)` gives the numbers of a figure or
table, what we say about it judged by those numbers, and the picture.
"""

from collections.abc import Callable

from papers.results import Result
from papers.silk_convergence import figure_3
from papers.silk_corner import figure_2
from papers.silk_real import figure_5, figure_6
from papers.silk_recovery import figure_1, table_1
from papers.silk_votes import figure_4

FIGURES: dict[int | str, Callable[[bool], Result]] = {
    "1": figure_1,
    "2": figure_2,
    "3": figure_3,
    "4": figure_4,
    "5": figure_5,
    "6": figure_6,
    "table1": table_1,
}
