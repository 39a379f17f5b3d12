"""The style of the page: the colours of the house's figures, by light and by dark."""

CSS = """
:root {
  color-scheme: light dark;
  --page: #f8f8f6; --card: #ffffff; --ink: #22262b; --quiet: #6b7178; --faint: #d9dcdf;
  --hair: #e9ebec; --blue: #0b5fa5; --wash: #e7f0f8; --orange: #c04c12; --green: #0b7a5d;
  --red: #b5222a; --grey: #858b92; --pale: #a9cfe9;
  --serif: ui-serif, Charter, "Iowan Old Style", "Palatino Linotype", Palatino, Georgia, serif;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #121518; --card: #1a1e22; --ink: #e8eaec; --quiet: #a3aab2; --faint: #3a4149;
    --hair: #2a3036; --blue: #5ab4e5; --wash: #16303f; --orange: #f0925a; --green: #3fc29b;
    --red: #f27d7d; --grey: #7d858e; --pale: #24536f;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 1rem/1.55 var(--sans); font-variant-numeric: tabular-nums;
}
header, main, footer { max-width: 72rem; margin: 0 auto; padding: 0 clamp(1rem, 4vw, 2.5rem); }
header { padding-top: clamp(2rem, 6vw, 4.5rem); }
main {
  display: grid; gap: clamp(1rem, 2.5vw, 1.75rem); padding-top: clamp(1.5rem, 4vw, 2.5rem);
  grid-template-columns: minmax(0, 1fr);
}
@media (min-width: 56rem) {
  main { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .whole, .half:not(.half + .half):not(:has(+ .half)) { grid-column: 1 / -1; }
}
h1, h2, h3, .figures dd { font-family: var(--serif); font-weight: 600; text-wrap: balance; }
h1 { font-size: clamp(2rem, 6vw, 3.25rem); line-height: 1.1; margin: 0 0 1rem; }
.lead, .note { text-wrap: pretty; }
h1, p, dd, li { overflow-wrap: anywhere; }
th, td { overflow-wrap: break-word; }
h2 { font-size: 1.375rem; line-height: 1.25; margin: 0 0 .35rem; }
h3 { font-size: 1.0625rem; margin: 1.5rem 0 .25rem; }
p { margin: 0 0 1rem; max-width: 44rem; }
.over { color: var(--blue); font-size: .875rem; letter-spacing: .02em; margin: 0 0 .5rem; }
.lead { font-size: clamp(1.0625rem, 2.4vw, 1.25rem); line-height: 1.5; margin: 0; }
.note, caption, figcaption { color: var(--quiet); font-size: .875rem; line-height: 1.5; }
section {
  background: var(--card); border: 1px solid var(--hair); border-radius: .75rem;
  padding: clamp(1rem, 3vw, 1.75rem); min-width: 0; display: flex; flex-direction: column;
}
.figures {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(8.25rem, 1fr));
  gap: 1.25rem 1.5rem; margin: clamp(1.5rem, 4vw, 2.5rem) 0 0; padding-top: 1.25rem;
  border-top: 1px solid var(--faint);
}
dt { color: var(--quiet); font-size: .8125rem; }
dd { margin: 0; }
.figures dd { font-size: 1.5rem; line-height: 1.25; }
.figures small { display: block; color: var(--quiet); font: .8125rem/1.4 var(--sans); }
.warnings {
  margin: 1.75rem 0 0; padding: .75rem 1rem; list-style: none; border-radius: .5rem;
  background: var(--card); border: 1px solid var(--hair); border-left: .25rem solid var(--orange);
}
.good.good { color: var(--green); }
.usable.usable { color: var(--orange); } .poor.poor { color: var(--red); }
figure { margin: 0; }
svg { display: block; width: 100%; overflow: visible; }
svg svg { overflow: hidden; }
.plot { padding: 1.75rem .75rem 3rem 3.25rem; }
.end-note { margin: 1rem 0 0; }
.plot.wide { flex: 1; display: flex; }
.plot.wide > svg { height: auto; min-height: 16rem; }
.plot.wide.short > svg { min-height: 11rem; }
.area { fill: var(--pale); fill-opacity: .55; }
.plot.square { max-width: 30rem; }
.plot.square > svg { height: auto; aspect-ratio: 1.18; }
text { font: 12px/1 var(--sans); fill: var(--quiet); }
.middle { text-anchor: middle; } .end { text-anchor: end; }
.grid { stroke: var(--hair); } .axis { stroke: var(--grey); } .zero { stroke: var(--grey); }
path { fill: none; vector-effect: non-scaling-stroke; }
.line { stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round; }
.line.s0 { stroke: var(--blue); } .line.s1 { stroke: var(--grey); stroke-width: 1.25; }
.dot { fill: var(--grey); stroke: var(--card); stroke-width: 1; }
.dot.s0, .up .dot { fill: var(--blue); } .down .dot { fill: var(--orange); }
.soft { fill-opacity: .9; }
.ideal { stroke: var(--grey); stroke-width: 1.25; stroke-dasharray: 4 4; }
.whisker { stroke: var(--blue); stroke-width: 1.5; }
.hollow { fill: none; stroke: var(--ink); stroke-width: 1.5; }
.bar { stroke: var(--grey); stroke-width: 2.5; stroke-linecap: round; }
.up .bar { stroke: var(--blue); } .down .bar { stroke: var(--orange); }
.band { stroke: var(--pale); stroke-width: 6; } .fill { fill: var(--pale); }
.keys { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: 0 0 .75rem; }
.key::before {
  content: ""; display: inline-block; width: 1.25rem; margin-right: .5rem; vertical-align: .25em;
  border-top: 2px solid var(--grey);
}
.key.s0::before { border-top: 3px solid var(--blue); }
.intervals { margin-top: .75rem; }
.intervals .row, .intervals .foot {
  display: grid; grid-template-columns: minmax(0, 1fr) auto; column-gap: 1rem; align-items: center;
}
.intervals .row + .row { border-top: 1px solid var(--hair); }
.intervals .name { padding-top: .375rem; overflow-wrap: anywhere; line-height: 1.3; }
.intervals .value { padding-top: .375rem; white-space: nowrap; }
.intervals b { font-weight: 500; margin-right: .75rem; }
.intervals .value span, .quiet { color: var(--quiet); }
.intervals .value small {
  display: block; color: var(--quiet); font-size: .8125rem; text-align: right;
}
.cell { grid-column: 1 / -1; position: relative; min-height: 1.25rem; }
.intervals .interval { position: absolute; inset: 0; height: 100%; }
.interval, .ruler { height: 1.25rem; }
@media (min-width: 40rem) {
  .intervals .row, .intervals .foot {
    grid-template-columns: minmax(0, 13rem) minmax(0, 1fr) 13rem;
  }
  .cell { grid-column: 2; min-height: 1.75rem; align-self: stretch; }
  .row .cell { grid-row: 1; }
  .intervals .row + .row { border: 0; }
  .intervals .name, .intervals .value { padding: .25rem 0; }
  .intervals .name { text-align: right; } .intervals .value { grid-column: 3; grid-row: 1; }
  .intervals b { display: inline-block; min-width: 4rem; text-align: right; }
  .intervals .value small { text-align: left; padding-left: 1rem; }
}
.scroll {
  /* A shade at the right edge while there is more to the right. */
  background:
    linear-gradient(to left, var(--card) 40%, transparent) right / 2rem 100% no-repeat local,
    linear-gradient(to left, var(--faint), transparent) right / .75rem 100% no-repeat;
  overflow-x: auto; margin: .75rem 0 0; border-radius: .25rem; }
.scroll:focus-visible,
summary:focus-visible { outline: 2px solid var(--blue); outline-offset: 3px; }
.scroll + .scroll, figure + .scroll { margin-top: 2rem; }
table { border-collapse: collapse; width: max-content; min-width: 100%; }
table, .intervals { font-size: .875rem; line-height: 1.4; }
caption { text-align: left; padding: 0 0 .5rem; }
th, td { text-align: left; vertical-align: top; padding: .45rem 1.25rem .45rem 0; min-width: 3rem; }
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--quiet); font-weight: 500; border-bottom: 1px solid var(--faint); }
tbody th { font-weight: 500; max-width: 18rem; }
tbody tr + tr > * { border-top: 1px solid var(--hair); }
td { max-width: 26rem; }
td .interval { min-width: 7rem; height: 1.25rem; }
@media (max-width: 40rem) {
  th, td { padding-right: .875rem; }
  .scroll .interval, .scroll .ruler { width: 7rem; }
}
.share { min-width: 6rem; width: 8rem; height: 1.25rem; }
.strip { min-width: 6rem; width: 8rem; height: 1.5rem; } .strip.low { height: 1.25rem; }
.figure-strip { padding: 0 .75rem 0 3.25rem; max-width: 30rem; }
.figure-strip .strip { width: 100%; height: 2.5rem; }
.chip {
  display: inline-block; padding: 0 .5rem; border-radius: 1rem; background: var(--wash);
  color: var(--ink); font-size: .8125rem;
}
details { margin-top: 1.25rem; }
summary { cursor: pointer; color: var(--blue); font-size: .9375rem; }
.gauge { height: 4.5rem; margin: 1rem 0; }
.gauge-box { padding: 0 .5rem; max-width: 30rem; }
.region { fill-opacity: .35; }
.region.good { fill: var(--green); } .region.usable { fill: var(--orange); }
.region.poor { fill: var(--red); }
.needle { fill: var(--ink); stroke: var(--card); stroke-width: 2; }
.settings { display: grid; margin: .75rem 0 0; font-size: .9375rem; }
.settings div {
  display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1.4fr); gap: 1rem;
  padding: .35rem 0; align-items: baseline;
}
.settings div + div { border-top: 1px solid var(--hair); }
.settings dt { font-size: .875rem; overflow-wrap: anywhere; }
footer { padding-top: 2rem; padding-bottom: 3rem; color: var(--quiet); font-size: .875rem; }
@media print {
  body { background: #ffffff; font-size: 10pt; }
  header { padding-top: 0; }
  section { border: 0; padding: 0; break-inside: avoid; }
  .whole { break-inside: auto; }
  .scroll { overflow: visible; }
  tr, .row { break-inside: avoid; }
  details:not([open]) { display: none; }
}
"""
