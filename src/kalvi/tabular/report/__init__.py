"""The summary of a model as one HTML page that needs no network, no scripts and no other files.

`templates` has the markup and the text: a file for each topic, with macros that make the cards of the page
from the summary. They escape everything that is not markup, and leave out what is absent. `document` makes
the page and lists the filters that templates use, `rendering` sets up the templates, `formatting` writes
numbers, `axes` places them on an axis and `figures` draws them as SVG. `performance`, `coefficients`,
`factors` and `rows` compute what the cards on these topics show.
"""

from kalvi.tabular.report.document import page

__all__ = ["page"]
