"""A network of 101,770 parameters on MNIST: a point, the Gaussians of its iterates, one pass, and VIFA.

Test rows, and inputs unlike them, are those of `digits`; entropies show how sure the network is about
inputs of a kind it has never seen. The one pass takes 12,288 rows; for an accelerator see
`device_networks`.
"""

import time

import kalvi
from benchmarks.digits import (
    RANK,
    Quality,
    collected,
    digits,
    drawn_probabilities,
    linearised_probabilities,
    network,
    one_pass,
    point_probabilities,
    quality,
    trained,
)

TESTED, QUICK_TESTED = 2000, 300
ROWS, QUICK_ROWS, CHUNK = 12_288, 256, 256
VIFA_EPOCHS = 20
HEADER = [
    "method",
    "rows",
    "accuracy",
    "log-loss",
    "ECE",
    "entropy",
    "turned",
    "noise",
    "CPU s",
    "wall s",
]


def mnist(report, quick):
    """A table of accuracy, log-loss, calibration and entropy."""
    shown = digits(QUICK_TESTED if quick else TESTED)
    if quick:
        shown = shown._replace(
            x=shown.x[:2560], y=shown.y[:2560], turned=shown.turned[:100], noise=shown.noise[:100]
        )
    rows = QUICK_ROWS if quick else ROWS
    shape, model, theta = network()
    report.heading(f"MNIST, 784-128-10 tanh, {len(theta):,} parameters, rank {RANK}")
    report.line(
        f"{len(shown.new_y)} test rows; entropies in nats on them, on digits turned by 90° and on uniform "
        "noise. CPU and wall seconds of learning, compilation included."
    )
    lines = [*_about_a_point(model, theta, shown, quick), _passed(model, shape, theta, shown, rows)]
    lines.append(_vifa(shown, quick))
    report.table(
        HEADER,
        lines,
    )


def _about_a_point(model, theta, shown, quick):
    """The trained point, and posteriors of the iterates that follow it."""
    start = _clock()
    rule, point = trained(model, theta, shown, *((2,) if quick else ()))
    took = _since(start)
    yield _line(
        "Adam", len(shown.y), quality(lambda x: point_probabilities(model, point, x), shown), took
    )
    for name, label in (("swag", "SWAG"), ("fa", "FA-SWAG")):
        start = _clock()
        found = collected(rule, point, shown, (name,), *((25,) if quick else ()))[0][name]
        more = [a + b for a, b in zip(took, _since(start), strict=True)]
        scores = quality(lambda x, q=found: drawn_probabilities(model, q, x), shown)
        yield _line(label, len(shown.y), scores, more)


def _passed(model, shape, theta, shown, rows):
    start = _clock()
    part = shown._replace(x=shown.x[:rows], y=shown.y[:rows])
    q = one_pass(model, shape, theta, part, min(CHUNK, len(part.y))).posterior
    took = _since(start)
    scores = quality(lambda x: linearised_probabilities(model, q, x), shown)
    return _line("L-RVGA, one pass", len(part.y), scores, took)


def _vifa(shown, quick):
    model = kalvi.NeuralClassifier(
        (128,), method="vifa", rank=RANK, epochs=2 if quick else VIFA_EPOCHS, random_state=0
    )
    start = _clock()
    model.fit(shown.x, shown.y)
    took = _since(start)
    return _line("NeuralClassifier, vifa", len(shown.y), quality(model.predict_proba, shown), took)


def _line(name: str, rows: int, scores: Quality, took) -> list[str]:
    cpu, wall = took
    return [
        name,
        str(rows),
        f"{100 * scores.accuracy:.2f} %",
        f"{scores.log_loss:.4f}",
        f"{scores.calibration_error:.4f}",
        *(f"{value:.2f}" for value in (scores.entropy, scores.turned, scores.noise)),
        f"{cpu:.0f}",
        f"{wall:.0f}",
    ]


def _clock() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def _since(start: tuple[float, float]) -> list[float]:
    return [now - then for now, then in zip(_clock(), start, strict=True)]
