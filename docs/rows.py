"""Writes the small made-up files that the pages' commands read, into the current folder.

`python docs/rows.py`: flights.parquet and july.csv (late or not), a.csv and b.csv (two shards),
sensors.parquet and today.csv (numbers without a target), votes.csv (zeros, ones and holes by day).
"""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

CARRIERS = np.array(["AA", "DL", "UA", "WN"])


def flights(rng: np.random.Generator, n: int) -> pa.Table:
    """Departures, and whether they were late: evenings and one carrier are worse."""
    hour, weekday = rng.integers(5, 24, n), rng.integers(1, 8, n)
    carrier, distance = rng.integers(4, size=n), rng.gamma(2.0, 400.0, n).round()
    log_odds = -2.2 + 0.08 * (hour - 5) + 0.5 * (carrier == 3) - 0.0002 * distance
    late = rng.random(n) < 1 / (1 + np.exp(-log_odds))
    return pa.table(
        {
            "hour": hour,
            "weekday": weekday,
            "carrier": CARRIERS[carrier],
            "distance": distance,
            "late": np.where(late, "yes", "no"),
        }
    )


def sensors(rng: np.random.Generator, n: int) -> pa.Table:
    """Eight numbers a row that follow two hidden ones."""
    loadings = np.random.default_rng(7).normal(size=(2, 8))
    x = rng.normal(size=(n, 2)) @ loadings + 0.5 * rng.normal(size=(n, 8))
    return pa.table({f"sensor{i}": x[:, i].round(4) for i in range(8)})


def votes(rng: np.random.Generator, days: int, members: int) -> pa.Table:
    """Yes or no by day and member, a fifth unknown, along one position that drifts."""
    position = np.sin(np.arange(days) / 12)[:, None] * rng.normal(size=members)
    yes = (rng.random((days, members)) < 1 / (1 + np.exp(-3 * position))).astype(int)
    shown = np.where(rng.random(yes.shape) < 0.2, None, yes)
    dates = np.datetime64("2024-01-01") + np.arange(days)
    columns = {f"member{i}": pa.array(shown[:, i].tolist(), pa.int8()) for i in range(members)}
    return pa.table({"day": dates.astype("datetime64[D]"), **columns})


def write() -> None:
    """All files, the same every time."""
    rng = np.random.default_rng(0)
    pa.parquet.write_table(flights(rng, 20_000), "flights.parquet")
    pa.csv.write_csv(flights(rng, 2_000), "july.csv")
    for name in ("a.csv", "b.csv"):
        pa.csv.write_csv(flights(rng, 5_000), name)
    pa.parquet.write_table(sensors(rng, 5_000), "sensors.parquet")
    pa.csv.write_csv(sensors(rng, 200), "today.csv")
    pa.csv.write_csv(votes(rng, 120, 30), "votes.csv")


if __name__ == "__main__":
    write()
    print("flights.parquet, july.csv, a.csv, b.csv, sensors.parquet, today.csv, votes.csv")
