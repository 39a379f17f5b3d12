"""Who speaks of which model: each has `say_columns`, `loss`, `say_fitted` and `say_summary`."""

from typing import Any

from kalvi.cli import factor_words, silk_words, words

VOICES = {"factor": factor_words, "silk": silk_words}


def voice(model: str) -> Any:
    """The words for a kind of model."""
    return VOICES.get(model, words)
