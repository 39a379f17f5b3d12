"""Section 6 of Khan, Baqué, Fleuret & Fua (2015), "Kullback-Leibler proximal variational inference".

`FIGURES[name](quick)` gives the numbers of a figure or table, the paper's claims about it judged by those
numbers, and the picture.
"""

from collections.abc import Callable

from papers.klprox_steps import steps_table
from papers.klprox_table2 import table_2, table_2b
from papers.klprox_table3 import figure_1, table_3
from papers.results import Result

FIGURES: dict[int | str, Callable[[bool], Result]] = {
    "1": figure_1,
    "table2": table_2,
    "table2b": table_2b,
    "table3": table_3,
    "steps": steps_table,
}
