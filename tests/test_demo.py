"""The demo learns what there is to learn."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from kalvi import demo


@pytest.fixture(scope="module")
def outcome():
    stream = demo.generate(10_000, 1)
    demo.warm_up(stream)
    return demo.learn(stream)


@pytest.mark.slow(reason="runs the demo, ten thousand rows")
def test_loss_is_near_the_truths(outcome):
    # d/2 log n nats are the price of learning d coefficients from n rows; allow it twice
    price = 2 * demo.DIM / 2 * np.log(outcome.rows) / outcome.rows
    assert outcome.truths[-1] < outcome.losses[-1] < outcome.truths[-1] + price
    assert abs(outcome.log_loss - outcome.truth_loss) < price
    assert outcome.accuracy > outcome.truth_accuracy - 0.01


@pytest.mark.slow(reason="runs the demo, ten thousand rows")
def test_predictions_are_calibrated(outcome):
    # the mean absolute gap of ten bins of 2000 rows is about 0.008 for perfect predictions
    assert outcome.calibration_error < 0.02


@pytest.mark.slow(reason="runs the demo, ten thousand rows")
def test_every_row_is_seen_once(outcome):
    assert outcome.seen[-1] == outcome.rows == 10_000
    assert np.all(np.diff(outcome.seen) > 0)


def test_progress_is_reported():
    told = []
    demo.learn(demo.generate(100, 0), lambda rows, loss: told.append((rows, loss)))
    assert told[-1][0] == 100


def test_summary_and_picture(outcome):
    assert dict(demo.summary(outcome))["rows"] == "10,000 of 20 features"
    figure = demo.draw(outcome)
    assert len(figure.axes) == 3
    plt.close(figure)


def test_an_empty_stream_is_refused():
    with pytest.raises(ValueError, match="at least one row; got 0"):
        demo.generate(0, 0)
