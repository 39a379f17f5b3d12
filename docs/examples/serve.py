"""Predictions over HTTP by FastAPI, from a model that `kalvi fit` made.

    kalvi fit flights.parquet --target late
    pip install fastapi uvicorn
    KALVI_MODEL=flights.kalvi uvicorn serve:app --workers 4

POST /predict takes rows as JSON objects and answers with what `kalvi predict` writes:

    curl -s localhost:8000/predict -H 'content-type: application/json' -d '[{"origin": "CGN", "hour": 7}]'
"""

import os
from typing import Annotated

from fastapi import FastAPI, HTTPException, Query

import kalvi

Row = dict[str, float | str | bool | None]

model = kalvi.load(os.environ.get("KALVI_MODEL", "model.kalvi"))
app = FastAPI(title=repr(model))


@app.post("/predict")
def predict(
    rows: list[Row], level: Annotated[float, Query(gt=0, lt=1)] = 0.95
) -> list[dict[str, float | str]]:
    """One answer for each row, in the order of the rows."""
    try:
        return model.predict_table(rows, level).to_pylist()
    except (ValueError, TypeError) as error:  # a column that is missing, or a value that cannot be
        raise HTTPException(422, str(error)) from error


@app.get("/model")
def about() -> dict[str, object]:
    """What the model is."""
    known = model.summary()
    return {name: known[name] for name in ("model", "target", "classes", "rows", "columns")}
