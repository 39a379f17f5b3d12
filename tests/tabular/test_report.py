"""The report of a model: what it says, where it draws, and that nothing of the data becomes markup."""

import base64
import copy
import functools
import hashlib
import itertools
import math
import operator
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from kalvi.plots import appearance
from kalvi.tabular.report import figures, formatting, page
from kalvi.tabular.report.axes import Scale, counting, covering
from kalvi.tabular.report.document import CSS
from kalvi.tabular.report.figures import Effect
from kalvi.tabular.report.rendering import ENVIRONMENT, element
from tests.tabular import summaries

SUMMARIES = (
    summaries.logistic,
    summaries.linear,
    summaries.bare,
    summaries.process,
    summaries.network,
    summaries.factor,
    summaries.silk,
    summaries.hostile,
    summaries.hostile_shapes,
    summaries.hostile_factor,
    summaries.hostile_silk,
)


def macros(template):
    """The macros of a template, as functions that give markup."""
    return ENVIRONMENT.get_template(template).module


def body(html: str) -> ElementTree.Element:
    """The body of the page as XML, which forgives nothing."""
    return ElementTree.fromstring(html[html.index("<body>") : html.index("</html>")])


def headings(html: str) -> list[str]:
    return ["".join(h.itertext()) for h in body(html).iter("h2")]


def said(html: str) -> str:
    return " ".join("".join(body(html).itertext()).split())


def marks(svg: str, tag: str, class_: str) -> list[dict[str, str]]:
    found = ElementTree.fromstring(svg).iter(tag)
    return [e.attrib for e in found if class_ in e.get("class", "").split()]


def percent(text: str) -> float:
    assert text.endswith("%")
    return float(text[:-1])


@pytest.mark.parametrize("make", SUMMARIES, ids=lambda make: make.__name__)
def test_the_page_is_well_formed_alone_and_the_same_every_time(make):
    summary = make()
    before = copy.deepcopy(summary)
    html = page(summary)
    for svg in (e for e in body(html).iter("svg") if e.get("role")):
        assert svg.get("role") == "img"
        assert svg.get("aria-label") == svg.findtext("title") != ""
    assert not re.search(r"https?:|//|url\(|@import|\bsrc=|\bhref=|\bstyle=", html)
    assert html.encode() == page(summary).encode()
    assert repr(summary) == repr(before)


def test_the_policy_admits_the_style_of_the_page_and_nothing_else():
    html = page(summaries.logistic())
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    assert unescape(policy).split("; ")[:2] == [
        "default-src 'none'",
        f"style-src 'sha256-{digest}'",
    ]


def test_colours_are_those_of_the_figures():
    light = CSS[: CSS.index("@media")]
    for variable, colour in {
        "ink": appearance.INK,
        "quiet": appearance.QUIET,
        "faint": appearance.FAINT,
        "blue": appearance.COLOURS["implicit"],
        "pale": appearance.PALE,
    }.items():
        assert f"--{variable}: {colour};" in light


def test_names_out_of_the_data_never_become_markup():
    seen: set[str] = set()
    attributes: set[str] = set()

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            seen.add(tag)
            attributes.update(name for name, _ in attrs)

    html = page(summaries.hostile())
    Reader().feed(html)
    assert "script" not in seen and not {a for a in attributes if a.startswith("on")}
    assert html.count("&lt;script&gt;alert(1)") >= 15
    assert "<script>alert(1)</script>\"'&��" in said(html)
    assert 'aria-label="&lt;' not in html  # labels are ours
    assert "w" * 300 not in html


NONSENSE = (None, math.nan, -math.inf, -1, 0, 1e308, True, "<x>", [], {}, [[]])


def paths(node, path=()):
    """The path of every node of a tree of dictionaries and lists, two of each list."""
    items = node.items() if isinstance(node, dict) else enumerate(node[:2])
    for key, child in items if isinstance(node, dict | list) else ():
        yield (*path, key)
        if isinstance(child, dict | list):
            yield from paths(child, (*path, key))


@pytest.mark.parametrize(
    "step", [7, pytest.param(1, marks=pytest.mark.slow(reason="draws four hundred pages"))]
)
def test_anything_may_be_missing_or_nonsense(step):
    """Every node of a summary, or some, replaced in turn by some nonsense: the page is a page."""
    flights = summaries.logistic()
    parts = {key: flights[key] for key in ("classes", "calibration", "columns")}
    mixed = {**summaries.linear(), **parts, "effects": flights["effects"][:2]}
    for summary in (mixed, summaries.process(), summaries.factor(), summaries.silk()):
        _check_nodes(summary, step)


def _check_nodes(summary, step):
    nodes = itertools.islice(paths(summary), 0, None, step)
    for path, value in zip(nodes, itertools.cycle(NONSENSE), strict=False):
        changed = copy.deepcopy(summary)
        functools.reduce(operator.getitem, path[:-1], changed)[path[-1]] = value
        body(page(changed))


def test_parts_without_content_are_left_out():
    assert headings(page(summaries.bare())) == []
    assert "There is nothing to draw yet." in said(page(summaries.bare()))
    flights = summaries.logistic()
    all_parts = headings(page(flights))
    assert all_parts == [
        "Learning curve",
        "Calibration",
        "Scores",
        "Coefficients",
        "Predictive examples",
        "Data",
        "Fit quality",
        "Settings",
    ]
    kept = (("curve", 0), ("calibration", 1), ("scores", 2), ("effects", 3), ("diagnosis", 6))
    for key, part in kept:
        left = headings(page({**flights, key: None}))
        assert left == all_parts[:part] + all_parts[part + 1 :]


@pytest.mark.parametrize(
    "changes, expected",
    [
        (
            {},
            "Bayesian logistic regression of late on 5 columns, learned from 3,000,000 rows "
            "in one pass in 61 s.",
        ),
        (
            {"classes": ["a", "b", "c"], "rank": 20, "passes": 5, "rows": 1},
            "Bayesian logistic regression of late (3 classes) on 5 columns with a covariance of "
            "rank 20, learned from 1 row in 5 passes in 61 s.",
        ),
        (
            {"model": "odd", "seconds": None, "rows": None, "passes": None},
            "odd of late on 5 columns.",
        ),
    ],
)
def test_the_sentence(changes, expected):
    said = macros("sentence.html").sentence({**summaries.logistic(), **changes})
    html = element("p", said)
    assert (
        "".join(ElementTree.fromstring(html).itertext()).replace(formatting.NBSP, " ") == expected
    )


def test_what_the_cards_say():
    flights = summaries.logistic()
    text = said(page(flights))
    predicted, observed, count = (
        np.array(flights["calibration"][key]) for key in ("predicted", "observed", "count")
    )
    error = 100 * np.average(np.abs(predicted - observed), weights=count)
    assert f"Expected calibration error {error:.2f} % over 2,999,090 rows." in text
    assert "The strongest 30 of 490" in text and "199 coefficients, strongest first" in text
    assert "1,234 (0.041 %)" in text and "229 levels; ORD 400,000, ATL 200,000" in text
    assert "48.1 MB" in text and "−1,296,300" in text and "49k a second" in text
    linear = said(page(summaries.linear()))
    assert "96.2 %" in linear and "−0.240" in linear and "−0.338 to −0.142" in linear
    assert "Pareto k 0.83. The Gaussian misses part" in linear


@pytest.mark.parametrize(
    "make, parts",
    [
        (summaries.process, ["Calibration", "Scores", "Gaussian process", "Data", "Settings"]),
        (summaries.network, ["Calibration", "Scores", "Network", "Data", "Settings"]),
        (summaries.factor, ["Learning curve", "Loadings", "Noise", "Outliers", "Data", "Settings"]),
        (
            summaries.silk,
            ["Matrix", "Factors", "Factors along rows and columns", "Ascent", "Data", "Settings"],
        ),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_every_kind_of_model_has_a_page(make, parts):
    assert headings(page(make())) == parts


def test_what_the_pages_of_other_models_say():
    process, network = said(page(summaries.process())), said(page(summaries.network()))
    assert "Constant × RBF" in process and "RBF.length scalevery late indeed[6.1, 0.4]" in process
    assert "In-sample: this model learns all rows together" in process
    assert "12 → 50 → 50 → 1" in network and "covariance of rank" not in network
    factors = said(page(summaries.factor()))
    assert "Factor analysis of 8 columns: 2 factors, learned from 5,000 rows in 2.3 s." in factors
    assert "factor 1: 30 % of the variance" in factors and "59.4 %" in factors
    votes = said(page(summaries.silk()))
    assert "2,879 entries, 80 %" in votes and "49.4 days" in votes and "2024-01-28" in votes


def test_scores_stand_beside_their_baselines():
    rows = {}
    for row in body(page(summaries.logistic())).iter("tr"):
        cells = ["".join(cell.itertext()) for cell in row]
        rows[cells[0]] = cells[1:]
    assert rows["accuracy"] == ["0.8123", "0.7871", "better", "always 'no', the commonest class"]
    assert rows["Brier score"][2] == "worse" and rows["log loss"][2] == "the same"
    text = said(page(summaries.logistic()))
    assert "0.812baseline 0.787" in text
    assert "12 % above that of the tenth before: the stream may have changed" in text


def test_probabilities_are_named_by_their_class():
    text = said(page(summaries.logistic()))
    assert "predicted p_yes" in text and "observed share of yes" in text
    heads = ["".join(h.itertext()) for h in body(page(summaries.logistic())).iter("th")]
    assert "p_yes" in heads
    several = summaries.logistic() | {"classes": ["a", "b", "c"]}
    for example in several["examples"]:
        example["class"] = "b"
    text = said(page(several))
    assert "p_b = 12 %" in text and "probability of the likeliest class" in text


def test_the_intercept_is_not_on_the_axis_of_effects():
    flights = summaries.logistic()
    page_body = body(page(flights))
    (figure,) = list(page_body.iter("figure"))
    assert "intercept" not in "".join(figure.itertext())
    rows = ["".join(row.itertext()) for row in page_body.iter("tr")]
    (told,) = [row for row in rows if row.startswith("intercept")]
    assert told.startswith("intercept−12.500 (−12.578 to −12.422)−0.02193")


def test_coefficients_are_in_both_units():
    text = said(page(summaries.linear()))
    assert "0.00143 per unit" in text and "effect on the mean of price" in text
    assert "mean, standardised" in text and "mean, original units" in text


def test_without_a_diagnosis_the_page_says_what_to_do():
    absent = "There is no diagnosis: fit it with --diagnose."
    text = said(page(summaries.logistic() | {"diagnosis": None, "diagnosis_absent": absent}))
    assert absent in text


def test_effects_are_drawn_class_by_class():
    flights = summaries.logistic()
    for i, effect in enumerate(flights["effects"]):
        effect["class"] = "abc"[i % 3]
    page_body = body(page(flights))
    assert ["".join(h.itertext()) for h in page_body.iter("h3")] == ["For a", "For b", "For c"]
    groups = [e for e in page_body.iter("div") if e.get("class") == "intervals"]
    names = [[b.text for b in group.iter("bdi")] for group in groups]
    assert names == [[e["name"] for e in flights["effects"][i::3][:10]] for i in range(3)]


def test_the_curve_is_where_the_numbers_are():
    rows, loss = [10, 100, 1000, 10_000], [4.0, 3.0, math.nan, 2.0]
    svg = figures.learning_curve(rows, {"loss": loss}, "log loss")
    (path,) = marks(svg, "path", "line")
    points = np.array([p.split() for p in re.split("[ML]", path["d"])[1:]], float)
    assert re.findall("[ML]", path["d"]) == ["M", "L", "M"]  # broken where a value is missing
    # Logarithmic in rows; the values with 6 % of their span to spare at both ends.
    np.testing.assert_allclose(points[:, 0], [0, 100 / 3, 100], atol=1e-3)
    np.testing.assert_allclose(points[:, 1], 100 * (4.12 - np.array([4, 3, 2])) / 2.24, atol=1e-3)
    (dot,) = marks(svg, "circle", "dot")
    np.testing.assert_allclose([percent(dot["cx"]), percent(dot["cy"])], points[-1])


def test_a_wild_start_does_not_flatten_the_curve():
    loss = [1e9, *np.linspace(2, 1, 30)]
    made = figures.learning_curve(list(range(1, 32)), {"loss": loss}, "log loss")
    svg, _, note = made.rpartition("<p ")
    assert "The first points lie above the frame." in note
    labels = [
        e.text for e in ElementTree.fromstring(svg).iter("text") if "end" in e.get("class", "")
    ]
    assert labels[:-1] == ["1", "1.2", "1.4", "1.6", "1.8", "2"]


def test_the_reliability_diagram_is_where_the_numbers_are():
    predicted, observed, count = [0.1, 0.8, 0.5], [0.2, 0.7, 0.5], [40, 10, 0]
    svg = figures.reliability(predicted, observed, count, "Calibration")
    dots, whiskers = marks(svg, "circle", "dot"), marks(svg, "line", "whisker")
    assert [(percent(d["cx"]), percent(d["cy"])) for d in dots] == [(10, 80), (80, 30)]
    # Areas beyond the least are as the counts: 3 + 5 √(n / 40) pixels.
    np.testing.assert_allclose([float(d["r"]) for d in dots], [8, 5.5])
    for whisker, seen, n in zip(whiskers, (8, 7), (40, 10), strict=True):
        interval = stats.binomtest(seen, n).proportion_ci(method="wilson")
        ends = [1 - percent(whisker[key]) / 100 for key in ("y1", "y2")]
        np.testing.assert_allclose(ends, interval, atol=2e-5)


def test_rare_events_fill_their_diagram():
    svg = figures.reliability([0.01, 0.03], [0.01, 0.04], [500, 500], "Calibration")
    assert [percent(d["cx"]) for d in marks(svg, "circle", "dot")] == [20, 60]


def test_coverage_is_where_the_numbers_are():
    svg = figures.coverage([0.5, 0.9], [0.55, 0.8], 1000, "Calibration")
    dots = marks(svg, "circle", "dot")
    np.testing.assert_allclose([percent(d["cx"]) for d in dots], [100 / 6, 250 / 3], atol=1e-3)
    np.testing.assert_allclose([percent(d["cy"]) for d in dots], [75, 100 / 3], atol=1e-3)


@pytest.mark.parametrize(
    "effect, side",
    [
        (Effect(1.0, 0.5, 1.5), "up"),
        (Effect(-1.0, -1.5, -0.5), "down"),
        (Effect(1.0, -0.5, 2.5), "flat"),
    ],
)
def test_an_interval_is_where_the_numbers_are(effect, side):
    svg = figures.interval(effect, Scale(-3.0, 3.0), mark=2.0)
    assert ElementTree.fromstring(svg).get("class") == f"interval {side}"
    (bar,), (dot,), (mark,) = (
        marks(svg, *what) for what in (("line", "bar"), ("circle", "dot"), ("circle", "hollow"))
    )
    found = [percent(v) for v in (dot["cx"], bar["x1"], bar["x2"])]
    np.testing.assert_allclose(found, 100 * (np.array(effect) + 3) / 6, atol=1e-3)
    np.testing.assert_allclose(percent(mark["cx"]), 500 / 6, atol=1e-3)


def test_one_wide_interval_does_not_hide_the_others():
    scale = figures.effect_scale([Effect(1.0, 0.5, 1.5), Effect(0.1, -1e6, 1e6)])
    assert -0.1 < scale.low < 0 and 1.5 < scale.high < 1.6


def test_the_gauge():
    (needle,) = marks(figures.gauge(0.3), "circle", "needle")
    assert percent(needle["cx"]) == 25
    assert percent(marks(figures.gauge(math.inf), "circle", "needle")[0]["cx"]) == 100
    assert marks(figures.gauge(math.nan), "circle", "needle") == []


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(3, 8))
def test_ticks_are_round_few_and_inside(low, span, most):
    scale = Scale(low, low + span)
    assume(span > 1e-9 * abs(low))
    ticks = np.array(scale.ticks(most))
    assert len(ticks) <= most
    assert all(scale.low - 1e-6 * span <= t <= scale.high + 1e-6 * span for t in ticks)
    if len(ticks) > 1:
        step = (ticks[-1] - ticks[0]) / (len(ticks) - 1)
        np.testing.assert_allclose(np.diff(ticks), step, rtol=1e-3)
        mantissa = step / 10 ** np.floor(np.log10(step) + 1e-4)
        assert min(abs(mantissa - np.array([1, 2, 5]))) < 1e-2


@pytest.mark.parametrize(
    "scale, most, expected",
    [
        (Scale(0, 1), 6, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (Scale(-2.9, 1.7), 5, [-2, -1, 0, 1]),
        (Scale(1, 1e6, log=True), 5, [1, 1e2, 1e4, 1e6]),
        (Scale(1e3, 3e6, log=True), 5, [1e3, 1e4, 1e5, 1e6]),
        (Scale(200, 9000, log=True), 5, [200, 500, 1000, 2000, 5000]),
        (Scale(50, 9000, log=True), 5, [100, 300, 1000, 3000]),
    ],
)
def test_ticks(scale, most, expected):
    np.testing.assert_allclose(scale.ticks(most), expected, rtol=1e-12)


def test_scales_of_degenerate_values():
    assert covering([2.0, 2.0, math.nan, math.inf]) == Scale(1.8, 2.2)
    assert covering([]) == Scale(-0.06, 1.06)
    assert covering([0.0]) == Scale(-1.0, 1.0)
    assert counting([0, 10, 100]) == Scale(0.0, 100)
    assert counting([0, 10, 1000]) == Scale(10, 1000, log=True)


@pytest.mark.parametrize(
    "say, value, expected",
    [
        (formatting.number, 0.43214, "0.4321"),
        (formatting.number, -1296300.4, "−1,296,300"),
        (formatting.number, 12.3456, "12.35"),
        (formatting.number, 0.00123456, "0.001235"),
        (formatting.number, 1.5e-7, "1.5 × 10⁻⁷"),
        (formatting.number, -2e20, "−2 × 10²⁰"),
        (formatting.number, -0.0, "0"),
        (formatting.number, math.nan, "–"),
        (formatting.number, -math.inf, "−∞"),
        (formatting.number, None, "–"),
        (formatting.count, 3_000_000, "3,000,000"),
        (formatting.short, 20_000, "20k"),
        (formatting.short, -1_500_000, "−1.5M"),
        (formatting.short, 0.25, "0.25"),
        (formatting.percent, 0.0237, "2.37 %"),
        (formatting.duration, 0.345, "0.34 s"),
        (formatting.duration, 61.2, "61 s"),
        (formatting.duration, 252, "4 min 12 s"),
        (formatting.duration, 7500, "2 h 5 min"),
        (formatting.duration, 266_400, "3 days 2 h"),
        (formatting.size, 812, "812 bytes"),
        (formatting.size, 48_123_456, "48.1 MB"),
        (formatting.size, None, "–"),
    ],
)
def test_numbers_in_words(say, value, expected):
    assert say(value).replace(formatting.NBSP, " ") == expected


def test_an_estimate_has_two_digits_of_its_deviation():
    assert [formatting.decimals(1.0, std) for std in (0.25, 0.031, 12.0, 0.0)] == [2, 3, 0, 3]


def test_tables_have_captions_and_heads():
    root = ElementTree.fromstring(
        macros("components.html").table("Two & two", ["a", "b"], [["x", "<1>"]])
    )
    assert root.findtext(".//caption") == "Two & two"
    assert [e.get("scope") for e in root.iter("th")] == ["col", "col", "row"]
    assert root.findtext(".//td") == "<1>"


def test_the_report_needs_neither_jax_nor_matplotlib():
    code = (
        "import sys; from kalvi.tabular.report import page; page({}); "
        "print({'jax', 'matplotlib', 'numpy', 'pyarrow'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


def test_the_page_says_how_the_posterior_was_found():
    text = "at the optimum of the variational bound after 7 passes over the rows"
    for about in (summaries.logistic(), {**summaries.logistic(), "diagnosis": None}):
        html = page({**about, "reached": {"how": "optimum", "text": text}})
        assert f"How the posterior was found: {text}." in said(html)
        assert "How the posterior was found" not in said(page(about))


def test_times_are_dates():
    column = {"name": "when", "kind": "time", "missing": 0, "mean": 1_593_549_504.0}
    column |= {"std": 864_000.0, "least": 1_577_836_800.0, "most": 1_609_113_600.0}
    text = said(page({**summaries.logistic(), "columns": [column]}))
    assert "2020-06-30 20:38:24 ± 10 days; from 2020-01-01 to 2020-12-28" in text
    assert "nan" not in said(
        page({**summaries.logistic(), "columns": [column | {"mean": math.inf}]})
    )


def test_why_there_are_no_scores():
    about = {**summaries.logistic(), "scores": None, "scores_absent": "There are no scores: few."}
    assert "There are no scores: few." in said(page(about))


def test_templates_escape_what_they_are_given():
    assert ENVIRONMENT.autoescape is True
    cell = macros("components.html").definitions([("<b>", "a\x00&b")], "settings")
    assert "<dt>&lt;b&gt;</dt><dd>a�&amp;b</dd>" in cell
