"""python -m benchmarks.rates: measures what benchmarks/simulate.py multiplies with, on one core.

Writes benchmarks/rates.json: seconds a row, peak bytes and seconds of a merge at rank 20 and blocks of 64
rows, float32, logistic. Other machines in the file (an accelerator, by `benchmarks.device.block`) are kept.
"""

import json
from pathlib import Path

import numpy as np

from benchmarks import memory
from benchmarks.scaling import Setting, low_rank, merging

FILE = Path(__file__).with_name("rates.json")
RANK, BLOCK, DIMS = 20, 64, (10**5, 10**6)


def main() -> None:
    kept = json.loads(FILE.read_text()) if FILE.exists() else {"machines": {}}
    points = []
    for d in DIMS:
        found = memory.apart(low_rank, Setting(d, RANK, BLOCK))
        seconds = float(np.median(found.seconds))
        points.append(
            {
                "dim": d,
                "seconds_per_row": float(f"{seconds:.3g}"),
                "peak_bytes": float(f"{1e6 * found.megabytes:.3g}"),
            }
        )
        print(points[-1], flush=True)
    pair = memory.apart(merging, DIMS[-1], RANK)
    each = pair["seconds_per_merge"] / DIMS[-1]
    kept |= {"rank": RANK, "block_size": BLOCK, "dtype": "float32"}
    kept["machines"]["core"] = {
        "points": points,
        "merge_seconds_per_parameter": float(f"{each:.3g}"),
    }
    FILE.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
