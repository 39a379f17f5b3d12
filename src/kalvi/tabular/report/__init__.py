"""A summary of a model as one HTML page that needs nothing else: no network, no script, no files.

`markup` makes elements whose text cannot become markup, `words` says numbers, `axes` places them, `figures`
draws. The cards of the page are by topic: `performance` (learning curve, calibration, scores),
`coefficients`, `shapes` (Gaussian processes and networks), `factors`, `matrix`, `rows` (examples, columns,
files), `fit` (diagnosis, settings); `cards` is what they share, and `document` puts them together.
"""

from kalvi.tabular.report.document import page

__all__ = ["page"]
