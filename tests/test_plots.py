"""Pictures show the numbers they were given."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.patches import Ellipse

from kalvi import plots

mpl.use("Agg")
random = np.random.default_rng(0)
A = np.linspace(-3, 3, 61)
GRID = (A, A, -(A[None, :] ** 2 + A[:, None] ** 2) / 2)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_ellipse_holds_95_per_cent():
    cov = np.array([[2.0, 0.8], [0.8, 0.5]])
    figure = plots.ellipses(GRID, {"implicit": (np.zeros(2), cov)})
    (patch,) = [p for p in figure.axes[0].patches if isinstance(p, Ellipse)]
    draws = random.multivariate_normal(np.zeros(2), cov, 20_000)
    inside = patch.contains_points(figure.axes[0].transData.transform(draws))
    assert inside.mean() == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 20_000))


def test_a_gaussian_off_the_map_is_named():
    far = {"EKF": (np.array([100.0, 0.0]), np.eye(2))}
    figure = plots.ellipses(GRID, far, history={"EKF": [(np.zeros(2), np.eye(2))]})
    assert "EKF is off the map, at (100, 0)" in [t.get_text() for t in figure.axes[0].texts]
    assert len(figure.axes[0].patches) == 2


def test_density_levels_hold_their_mass():
    figure = plots.ellipses(GRID, {})
    levels = figure.axes[0].collections[0].levels  # a standard normal holds 1 − e^h above height h
    np.testing.assert_allclose(1 - np.exp(levels[:4]), plots.LEVELS, atol=0.02)


def test_reliability_shows_the_bins():
    predicted, observed = np.array([0.1, 0.9]), np.array([0.2, 0.8])
    figure = plots.reliability(predicted, observed, np.array([50, 50]))
    points = figure.axes[0].lines[-1]
    np.testing.assert_array_equal(points.get_xdata(), predicted)
    np.testing.assert_array_equal(points.get_ydata(), observed)


def test_memories_are_stacked_to_one_and_surprises_are_lines():
    rows, drifts = np.array([64, 128, 256]), np.array([1.0, 0.99])
    weights = np.array([[0.5, 0.5], [0.9, 0.1], [1.0, 0.0]])
    axes = plots.learned_settings(rows, drifts, weights, surprises=[128]).axes[0]
    heights = [c.get_paths()[0].vertices[:, 1].max() for c in axes.collections]
    np.testing.assert_allclose(heights, [1.0, 1.0])
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["all rows", "100 rows"]
    assert list(axes.lines[0].get_xdata()) == [128, 128]


def test_coefficients_are_ordered_by_size():
    figure = plots.coefficients(["a", "b", "c"], np.array([0.1, -3, 1]), np.ones(3))
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["a", "c", "b"]


def test_panels_compose():
    x, y = random.normal(size=(20, 2)), np.arange(20) % 2
    panels = [
        [
            lambda axes: plots.scatter(x, y, axes=axes),
            lambda axes: plots.lines(A, {"a": A}, axes=axes),
        ],
        [lambda axes: plots.image(np.eye(3), axes=axes), None],
    ]
    figure = plots.compose(panels, title="All")
    assert len(figure.axes) == 3
    np.testing.assert_array_equal(figure.axes[0].collections[1].get_offsets(), x[y == 1])


def test_save_writes_whole_files_and_closes(tmp_path):
    figure = plots.lines(A, {"a": A})
    plots.save(figure, tmp_path / "a.png")
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]
    assert plt.get_fignums() == []


def test_save_leaves_nothing_when_it_fails(tmp_path):
    with pytest.raises(ValueError, match="not supported"):
        plots.save(plots.lines(A, {"a": A}), tmp_path / "a.nonsense")
    assert list(tmp_path.iterdir()) == []


def test_style_is_not_left_behind():
    before = mpl.rcParams["font.size"], mpl.rcParams["axes.spines.top"]
    plots.scatter(random.normal(size=(9, 2)), np.arange(9) % 2)
    assert (mpl.rcParams["font.size"], mpl.rcParams["axes.spines.top"]) == before


def test_matrices_show_their_entries_and_leave_what_is_missing_grey():
    values = np.array([[0.0, 1.0, np.nan], [0.25, 0.5, 0.75]])
    figure = plots.image(values, extent=(0, 30, 20, 10))
    (drawn,) = figure.axes[0].images
    np.testing.assert_array_equal(drawn.get_array().filled(np.nan), values)
    assert drawn.get_clim() == (0, 1) and drawn.get_extent() == [0, 30, 20, 10]
    assert figure.axes[0].get_facecolor() == mpl.colors.to_rgba(plots.FAINT)


def test_factors_stand_apart_with_their_bands():
    where, mean = np.array([2.0, 0.0, 1.0]), np.array([[1.0, 5.0], [0.0, -5.0], [-1.0, 0.0]])
    std = np.full((3, 2), 0.5)
    axes = plots.paths(where, mean, std, truth=mean, seen=(0.0, 1.0)).axes[0]
    centres = [line.get_ydata() for line in axes.lines if len(line.get_ydata()) == 3]
    np.testing.assert_allclose(centres[0], [0, -1, 1])
    shift = axes.get_yticks()[1]
    np.testing.assert_allclose(centres[2] - shift, [-5, 0, 5])
    first, second = (band.get_paths()[0].vertices[:, 1] for band in axes.collections)
    assert first.max() == 1 + 1.96 / 2 and first.min() == -1 - 1.96 / 2 > second.max()
    assert len(axes.patches) == 1  # the ground beyond what was seen, on one side only


def test_the_trace_is_what_was_missing():
    axes = plots.trace(np.array([-100.0, -20.0, -11.0, -10.0])).axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [90, 10, 1])
    assert axes.get_yscale() == "log" and axes.texts[0].get_text() == "last: −10.0 nats"
