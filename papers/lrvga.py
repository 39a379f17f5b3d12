"""The figures and tables of Lambert, Bonnabel & Bach (2023), "The limited-memory recursive variational
Gaussian approximation (L-RVGA)".

`FIGURES[n](quick)` gives the numbers of figure n, the paper's claims about it judged by those numbers,
and the picture; tables go by their names.
"""

from collections.abc import Callable

from papers.lrvga_cost import table_1, table_2
from papers.lrvga_covariance import figure_1
from papers.lrvga_linear import figure_2
from papers.lrvga_mirror import figure_5
from papers.lrvga_optimiser import figure_optimiser
from papers.lrvga_ranks import figure_3, figure_3b
from papers.lrvga_sampling import figure_4, table_3
from papers.results import Result

FIGURES: dict[int | str, Callable[[bool], Result]] = {
    1: figure_1,
    2: figure_2,
    3: figure_3,
    "3b": figure_3b,
    4: figure_4,
    5: figure_5,
    "table1": table_1,
    "table2": table_2,
    "table3": table_3,
    "optimiser": figure_optimiser,
}
