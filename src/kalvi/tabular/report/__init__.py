"""A summary of a model as one HTML page that needs nothing else: no network, no script, no files.

`templates` has the markup and the words: a file for each topic, whose macros make the cards of the page
from the summary itself. They escape everything that was not made as markup, and leave out what is absent.
`document` has the page and the filters that templates use, `rendering` sets templates up, `formatting`
writes numbers, `axes` places them and `figures` draws them as SVG. `performance`, `coefficients`, `factors`
and `rows` compute what the cards of these topics show.
"""

from kalvi.tabular.report.document import page

__all__ = ["page"]
