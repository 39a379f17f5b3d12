"""Calls of all sizes share a few programs, and so do estimators with other settings."""

import jax
import numpy as np
import pytest

import kalvi
from kalvi.streams import engines

COLUMNS, CALLS, MOST = 4, 200, 4
COMPILED = "/jax/core/compile/backend_compile_duration"
COPIES = {"jit(copy)", "jit(stage)"}
"""Programs of JAX that move one array, compiled in milliseconds."""
ROWS = np.random.default_rng(1).normal(size=(10_000, COLUMNS))
LABELS = (ROWS[:, 0] > 0).astype(int)

compiled: list[str] = []


def count(event: str, duration: float, fun_name: str = "", **_: object) -> None:
    if event == COMPILED:
        compiled.append(fun_name)


jax.monitoring.register_event_duration_secs_listener(count)


def walk(model, seed):
    """Rows learned and predicted, from one to ten thousand at a time."""
    rng = np.random.default_rng(seed)
    for _ in range(CALLS):
        n = int(10 ** rng.uniform(0, 4))
        if rng.integers(2):
            model.partial_fit(ROWS[:n], LABELS[:n], classes=[0, 1])
        else:
            model.predict_proba(ROWS[:n])


@pytest.mark.slow(reason="compiles a stream for chunks of three sizes")
def test_a_random_walk_of_calls_compiles_few_programs(monkeypatch):
    monkeypatch.setattr(engines, "FIRST_ROWS", 64)
    compiled.clear()
    walk(kalvi.LogisticRegression(), 0)
    assert 0 < len([name for name in compiled if name not in COPIES]) <= MOST
    compiled.clear()
    walk(kalvi.LogisticRegression(prior_scale=0.3), 1)
    assert not compiled
