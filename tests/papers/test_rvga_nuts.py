"""NUTS started by R-VGA: a quick run, and what a total is."""

import numpy as np
import pytest

from papers import rvga_nuts


def test_what_a_total_is():
    run = rvga_nuts.Run(adaptation=500.0, effective=200.0, gradients=1400.0)
    assert run.total == 500 + 1000 * 7


@pytest.mark.slow(reason="compiles three samplers")
def test_quick_table():
    result = rvga_nuts.table_nuts(True)
    by = {row["adapted by"]: row for row in result.table}
    assert set(by) == {rvga_nuts.RVGA_START, rvga_nuts.DENSE, rvga_nuts.DIAGONAL}
    # a start that knows the posterior has less to adapt
    assert (
        by["R-VGA"]["gradients of the adaptation"]
        < by[rvga_nuts.DENSE]["gradients of the adaptation"]
    )
    assert all(np.isfinite(row[f"in all to {rvga_nuts.GOAL}"]) for row in result.table)
    result.draw()
