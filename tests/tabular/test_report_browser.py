"""The report in a real browser: phone and desktop, light and dark, offline."""

import itertools
import json
import shutil

import pytest

from kalvi.tabular.report import page
from tests.tabular import summaries

SIZES = ((320, 640), (360, 740), (1280, 900))
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Contrast as WCAG 2.1 has it; the text of a figure has a fill instead of a colour. Figures in a
# box that scrolls are judged by the box. Everything folded is opened first.
INSPECT = """
document.querySelectorAll("details").forEach(d => d.open = true);
const channels = c => c.match(/[\\d.]+/g).map(Number);
const luminance = c => {
  const [r, g, b] = channels(c).slice(0, 3)
    .map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const opaque = c => { const v = channels(c); return v.length < 4 || v[3] === 1; };
const ground = e => {
  for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor;
    if (opaque(c)) return c;
  }
  return "rgb(255, 255, 255)";
};
const contrast = e => {
  const style = getComputedStyle(e);
  const [a, b] = [luminance(e.closest("svg") ? style.fill : style.color), luminance(ground(e))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
};
const box = e => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const texts = [];
while (words.nextNode()) {
  const e = words.currentNode.parentElement;
  const said = words.currentNode.textContent.trim();
  if (!said || e.tagName === "title") continue;
  const range = document.createRange();
  range.selectNode(words.currentNode);
  texts.push({said: said.slice(0, 40), contrast: contrast(e), boxes: range.getClientRects().length,
              size: parseFloat(getComputedStyle(e).fontSize)});
}
const figures = [...document.querySelectorAll("svg[role=img]")].map(svg => ({
  label: svg.getAttribute("aria-label"), box: box(svg), own: box(svg.closest(".scroll") || svg),
  labels: [...svg.querySelectorAll("text")].map(box), scrolls: !!svg.closest(".scroll"),
}));
return {texts, figures, width: innerWidth, scroll: document.documentElement.scrollWidth,
        ground: getComputedStyle(document.body).backgroundColor,
        headings: [...document.querySelectorAll("h2")].map(e => e.textContent)};
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    browser = webdriver.Chrome(options=options, service=service)
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    yield browser
    browser.quit()


def look(browser, size, scheme):
    """What is on the page at this size of window, by light or by dark."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    window = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", window)
    return browser.execute_script(INSPECT)


def apart(a, b):
    return a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


PAGES = ["logistic", "linear", "bare", "hostile", "process", "network", "factor", "silk"]


@pytest.mark.parametrize("name", [*PAGES, "hostile_shapes", "hostile_factor", "hostile_silk"])
def test_the_page_in_a_browser(browser, tmp_path, name):
    path = tmp_path / "report.html"
    html = page(getattr(summaries, name)())
    path.write_text(html, encoding="utf-8")
    browser.get_log("performance")
    browser.get(path.as_uri())
    grounds = {}
    for size, scheme in itertools.product(SIZES, ("light", "dark")):
        seen = look(browser, size, scheme)
        grounds[scheme] = seen["ground"]
        assert seen["width"] == size[0] and seen["scroll"] <= size[0]
        assert len(seen["figures"]) == html.count('role="img"')
        for figure in seen["figures"]:
            left, top, right, bottom = figure["box"]
            assert right - left > 40 and bottom - top > 10, figure
            assert figure["own"][0] >= 0 and figure["own"][2] <= size[0], figure
            for a, b in itertools.combinations(figure["labels"], 2):
                assert apart(a, b), figure
            if not figure["scrolls"]:
                assert all(a >= 0 and c <= size[0] for a, _, c, _ in figure["labels"]), figure
        for text in seen["texts"]:
            assert text["boxes"] > 0 and text["contrast"] >= 4.5 and text["size"] >= 11, text
    assert grounds["light"] != grounds["dark"]
    assert browser.get_log("browser") == []
    events = [json.loads(e["message"])["message"] for e in browser.get_log("performance")]
    asked = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    urls = {request["request"]["url"] for request in asked}
    # The browser's own first tab may still be at work; no page can ask for what it asks for.
    assert {url for url in urls if not url.startswith("chrome://")} == {path.as_uri()}
