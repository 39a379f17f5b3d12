"""The page, as one HTML file, and the functions that its templates may call."""

import base64
import hashlib

from markupsafe import Markup

from kalvi.tabular.report import coefficients, factors, figures, formatting, performance, rows
from kalvi.tabular.report.rendering import ENVIRONMENT, LEVEL, TEMPLATES, named, setting

CSS = (TEMPLATES / "page.css").read_text("utf-8")


def page(summary: dict) -> str:
    """The summary as one HTML page, with everything escaped; parts that are absent are left out."""
    title = str(summary.get("name") or "kalvi")
    template = ENVIRONMENT.get_template("page.html")
    return template.render(summary=summary, title=title, policy=_policy(CSS), style=Markup(CSS))


def _policy(style: str) -> str:
    """The content security policy that allows this style and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def spaced(name: object) -> str:
    """A name with spaces in place of underscores."""
    return str(name).replace("_", " ")


FILTERS = (
    formatting.count,
    formatting.duration,
    formatting.listing,
    formatting.mapping,
    formatting.mappings,
    formatting.number,
    formatting.pairs,
    formatting.percent,
    formatting.real,
    named,
    setting,
    spaced,
    performance.against_baseline,
    performance.calibration,
    performance.learned_settings,
    performance.learning,
    performance.loss_name,
    performance.speed,
    coefficients.coefficients,
    coefficients.estimate,
    factors.ascent_curve,
    factors.loading_row,
    factors.matrix_factors,
    factors.noise_table,
    rows.data_tables,
    rows.examples,
)
ENVIRONMENT.filters |= {function.__name__: function for function in FILTERS}
ENVIRONMENT.filters["shorten"] = formatting.cut
ENVIRONMENT.globals |= {"ABSENT": formatting.ABSENT, "LEVEL": LEVEL, "figures": figures}
