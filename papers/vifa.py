"""Chapter 6 and appendix A of Brownlie (2021), "Extending the Bayesian deep learning method MultiSWAG", MSc
thesis, University of Edinburgh: SGD iterates, and variational inference, against posteriors that are known.

`FIGURES[name](quick)` gives the numbers of a figure or table, the thesis's claims about it judged by those
numbers, and the picture. "structure" is ours: what the covariance of 4.3 can hold, and what it cannot.
"""

from collections.abc import Callable

from papers.results import Result
from papers.vifa_ensembles import figure_6_4, table_a_1
from papers.vifa_iterates import figure_6_1, figure_6_2, table_6_1
from papers.vifa_members import table_members
from papers.vifa_posterior import figure_6_3, table_6_2
from papers.vifa_structure import structure

FIGURES: dict[int | str, Callable[[bool], Result]] = {
    "6.1": figure_6_1,
    "6.2": figure_6_2,
    "6.3": figure_6_3,
    "6.4": figure_6_4,
    "table6.1": table_6_1,
    "table6.2": table_6_2,
    "tableA.1": table_a_1,
    "structure": structure,
    "members": table_members,
}
