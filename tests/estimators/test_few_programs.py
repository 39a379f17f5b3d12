"""Calls of all sizes share a few programs, and so do estimators with other settings."""

import jax
import numpy as np
import pytest

import kalvi
from kalvi.streams import engines

COLUMNS, MOST = 4, 4
COMPILED = "/jax/core/compile/backend_compile_duration"
COPIES = {f"jit({name})" for name in ("copy", "stage", "broadcast_in_dim", "convert_element_type")}
"""Programs of JAX that move, fill or convert one array, compiled in milliseconds."""
ROWS = np.random.default_rng(1).normal(size=(10_000, COLUMNS))
LABELS = (ROWS[:, 0] > 0).astype(int)

compiled: list[str] = []


def count(event: str, duration: float, fun_name: str = "", **_: object) -> None:
    if event == COMPILED:
        compiled.append(fun_name)


jax.monitoring.register_event_duration_secs_listener(count)


def walk(model, calls, seed):
    """Rows learned and predicted, from one to ten thousand at a time."""
    rng = np.random.default_rng(seed)
    for _ in range(calls):
        n = int(10 ** rng.uniform(0, 4))
        if rng.integers(2):
            model.partial_fit(ROWS[:n], LABELS[:n], classes=[0, 1])
        else:
            model.predict_proba(ROWS[:n])


COUNTS = [
    (30, {"scheme": "ekf"}),  # whose program is small
    pytest.param(
        200, {}, marks=pytest.mark.slow(reason="compiles a stream for chunks of three sizes")
    ),
]


@pytest.mark.parametrize(("calls", "settings"), COUNTS)
def test_a_random_walk_of_calls_compiles_few_programs(calls, settings, monkeypatch):
    monkeypatch.setattr(engines, "FIRST_ROWS", 64)
    compiled.clear()
    walk(kalvi.LogisticRegression(**settings), calls, 0)
    assert 0 < len([name for name in compiled if name not in COPIES]) <= MOST
    compiled.clear()
    walk(kalvi.LogisticRegression(prior_mean=0.3, **settings), calls, 1)
    assert not set(compiled) - COPIES
