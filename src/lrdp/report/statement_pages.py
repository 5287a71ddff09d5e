"""The statement as text and as one HTML page that needs no network and prints well."""

from __future__ import annotations

from html import escape
from textwrap import fill
from typing import Final

from lrdp.figures import AtMost
from lrdp.report import risk_picture
from lrdp.report.statement import Statement
from lrdp.screen import visible

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --soft: #57606a; --line: #d0d7de; --bar: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --soft: #9aa4af; --line: #30363d; --bar: #6cb6ff; }
}
body { margin: 2rem auto; max-width: 52rem; padding: 0 1rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin-bottom: 0; }
.under { color: var(--soft); margin-top: .2rem; }
.plainly { border-left: .3rem solid var(--bar); padding-left: 1rem; font-size: 1.15rem; }
meter { width: 100%; height: 1.4rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .5rem .6rem; border-top: 1px solid var(--line);
  overflow-wrap: anywhere; }
th { width: 12rem; font-weight: 600; }
.curve { max-width: 24rem; font-size: .7rem; fill: var(--soft); }
.curve polyline, .curve line, .curve rect { fill: none; stroke: var(--bar); stroke-width: 2; }
.curve rect, .curve line { stroke: var(--line); stroke-width: 1; }
.curve .chance { stroke: var(--soft); stroke-dasharray: 1 3; }
@media (max-width: 36rem) { th, td { display: block; width: auto; } td { border-top: 0; padding-top: 0; } }
@media print {
  :root { color-scheme: light; --ink: #000000; --paper: #ffffff; --soft: #444444; --line: #999999; --bar: #0b5cad; }
  body { margin: 0; max-width: none; font-size: 10pt; }
  tr { break-inside: avoid; }
}
"""


def text(statement: Statement, width: int = 100) -> str:
    """For a terminal or a letter."""
    summary = statement.summary
    title = f"Privacy statement of {visible(summary.client)}"
    parts = [title, "=" * len(title)]
    for point in statement.points:
        parts += ["", point.title, fill(visible(point.text), width, initial_indent="  ", subsequent_indent="  ")]
    return "\n".join([*parts, "", "This is evidence for an expert's judgement, not a certificate of compliance."])


def html(statement: Statement) -> str:
    """One page; everything that came from outside is made visible and escaped."""
    summary = statement.summary
    plain, *others = statement.points
    client = _words(summary.client)
    rows = "\n".join(
        f'<tr id="{escape(point.key)}"><th scope="row">{escape(point.title)}</th><td>{_words(point.text)}</td></tr>'
        for point in others
    )
    used, budget = summary.guaranteed.epsilon, summary.budget.epsilon
    label = f"ε used: {AtMost(used):.3f} of {budget}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Privacy statement of {client}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>Privacy statement of {client}</h1>
<p class="under">Filled by the ledger from {summary.entries} entries.
Evidence for an expert's judgement, not a certificate.</p>
<p class="plainly">{_words(plain.text)}</p>
<p><label>{escape(label)}<br>
<meter min="0" max="{budget}" value="{min(used, budget)}">{escape(label)}</meter></label></p>
<table>
<tbody>
{rows}
</tbody>
</table>
{_curves(statement)}</main>
</body>
</html>
"""


def _curves(statement: Statement) -> str:
    summary = statement.summary
    if not summary.history:
        return ""
    picture = risk_picture.svg(summary.trade_off, summary.trade_off_spent)
    return f"<figure>\n{picture}\n<figcaption>{risk_picture.LABEL}</figcaption>\n</figure>\n"


def _words(text: str) -> str:
    return escape(visible(text))
