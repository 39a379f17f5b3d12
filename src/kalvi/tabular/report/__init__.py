"""A summary of a model as one HTML page that needs nothing else: no network, no script, no files.

`markup` makes elements whose text cannot become markup, `words` says numbers, `axes` places them,
`figures` draws, `sections` are the parts of the page, `document` puts them together.
"""

from kalvi.tabular.report.document import page

__all__ = ["page"]
