"""A summary of a model as one HTML page that needs nothing else: no network, no script, no files.

The markup is in `templates`, where everything is escaped that was not made as markup; `rendering` fills
them in. `formatting` says numbers, `axes` places them, `figures` draws. Cards are by topic, each with a
template of the same name: `performance` (learning curve, calibration, scores), `coefficients`, `shapes`
(Gaussian processes and networks), `factors`, `matrix`, `rows` (examples, columns, files), `fit` (diagnosis,
settings). `document` puts them together.
"""

from kalvi.tabular.report.document import page

__all__ = ["page"]
