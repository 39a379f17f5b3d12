"""Pictures show the numbers they were given."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from kalvi import plots
from papers import pictures

mpl.use("Agg")
A = np.linspace(-3, 3, 61)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_kl_curves_carry_every_value_and_name():
    times, curves = (
        np.arange(4),
        {"implicit": np.array([8.0, 4, 2, 1]), "EKF": np.array([8.0, 9, 9, 9])},
    )
    figure = pictures.kl_curves(times, curves, levels={"Laplace": 3.0})
    drawn = {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}
    np.testing.assert_array_equal(drawn["EKF"], curves["EKF"])
    assert {t.get_text() for t in figure.axes[0].texts} == {"implicit", "EKF", "Laplace"}
    heights = sorted(t.xy[1] for t in figure.axes[0].texts)
    assert np.all(np.diff(np.log(heights)) > 0)


def test_maps_and_brackets_compose():
    x, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    chances, hill = np.full((61, 61), 0.5) + A / 10, 3 - (A[None, :] ** 2 + A[:, None] ** 2) / 2
    panels = [
        [
            lambda axes: pictures.probability_map(A, A, chances, points=(x, y), axes=axes),
            lambda axes: pictures.surface(A, A, hill, marks={"root": (0.0, 0.0)}, axes=axes),
        ],
        [
            lambda axes: pictures.bands(
                A, A - 1, A + 1, {"path": A}, target=0.0, legend=True, axes=axes
            ),
            lambda axes: pictures.table([{"method": "EKF", "nats": "1.5"}], axes=axes),
        ],
    ]
    figure = plots.compose(panels, title="All")
    assert len(figure.axes) == 5  # four panels and a colour bar
    np.testing.assert_array_equal(figure.axes[0].collections[-1].get_offsets(), x)
    (cells,) = (drawn for axes in figure.axes for drawn in axes.tables)
    assert cells[1, 1].get_text().get_text() == "1.5"
