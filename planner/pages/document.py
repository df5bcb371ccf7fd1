"""One page of HTML that opens from disk: headline, charts and tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.files.json_text import dump_json
from planner.pages.charts import VEGA, Spec, vega_bundle
from planner.pages.html_tables import text


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A part of a page: title, text, and a chart or a table."""

    title: str
    note: str = ""
    chart: Spec | None = None
    table: str = ""
    """HTML made by ``rows_html``."""
    lines: Sequence[str] = ()


def html_page(title: str, headline: Sequence[tuple[str, str]], panels: Sequence[Panel]) -> str:
    """Return a page of HTML: a title, its first numbers, and panels below each other.

    Raises
    ------
    MissingDependencyError
        The library that draws charts is not installed.

    """
    facts = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in headline
    )
    sections = "\n".join(_section(number, panel) for number, panel in enumerate(panels))
    charts = [
        {"id": f"chart{number}", "vega": panel.chart.get("$schema") == VEGA, "spec": panel.chart}
        for number, panel in enumerate(panels)
        if panel.chart is not None
    ]
    return _PAGE.format(
        title=text(title),
        style=STYLE,
        facts=facts,
        sections=sections,
        bundle=vega_bundle(),
        charts=script_data(charts),
        script=_SCRIPT,
    )


def script_data(data: object) -> str:
    """Return data as JSON that cannot end the script element around it."""
    dumped = dump_json(data, separators=(",", ":"), only_ascii=True)
    return dumped.replace("<", "\\u003c")


def _section(number: int, panel: Panel) -> str:
    """Return a panel as HTML."""
    note = f"<p>{text(panel.note)}</p>" if panel.note else ""
    lines = "".join(f"<li>{text(line)}</li>" for line in panel.lines)
    body = f"<ul>{lines}</ul>" if lines else ""
    if panel.chart is not None:
        body += f'<div class="chart" id="chart{number}"></div>'
    if panel.table:
        body += (
            '<input type="search" placeholder="filter rows" aria-label="filter rows">'
            f'<div class="rows">{panel.table}</div>'
        )
    return f"<section><h2>{text(panel.title)}</h2>{note}{body}</section>"


STYLE = """
:root{color-scheme:light}
body{font:15px/1.45 system-ui,sans-serif;margin:0 auto;max-width:1180px;padding:1em 1.5em;
  color:#222}
h1{font-size:1.5em;margin:.4em 0}h2{font-size:1.15em;margin:1.6em 0 .2em}
p{margin:.2em 0 .6em;color:#555}
dl{display:flex;flex-wrap:wrap;gap:.4em 2.2em;margin:0}dt{color:#555;font-size:.85em}
dd{margin:0;font-size:1.2em}
.chart{width:100%}.rows{max-height:32em;overflow:auto;margin-top:.4em}
table{border-collapse:collapse;font-size:.9em}th,td{padding:.15em .8em;border-bottom:1px solid #ddd;
  white-space:nowrap}
td.prose{white-space:normal;min-width:24em}
th{position:sticky;top:0;background:#fff;text-align:left;cursor:pointer}
th[aria-sort=ascending]::after{content:" \\25b2"}th[aria-sort=descending]::after{content:" \\25bc"}
input[type=search]{font:inherit;padding:.15em .5em}
"""

_SCRIPT = """
for (const {id, vega, spec} of JSON.parse(document.getElementById("charts").textContent)) {
  vegaEmbed("#" + id, spec, {mode: vega ? "vega" : "vega-lite", renderer: "canvas",
    actions: {source: false, compiled: false, editor: false}
  }).then(() => document.getElementById(id).dataset.drawn = "1");
}
for (const table of document.querySelectorAll("section table")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const key = (row, column) => {
    const cell = row.cells[column];
    if (!("v" in cell.dataset)) return cell.textContent;
    return cell.dataset.v === "" ? Infinity : Number(cell.dataset.v);
  };
  heads.forEach((head, column) => head.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach(each => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].map(row => [key(row, column), row]);
    rows.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1));
    body.append(...rows.map(([, row]) => row));
  }));
  const filter = table.closest("section").querySelector("input[type=search]");
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}
"""

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,"><title>{title}</title><style>{style}</style></head><body>
<h1>{title}</h1><dl>{facts}</dl>
{sections}
<script type="application/json" id="charts">{charts}</script>
<script type="module">{bundle}
{script}</script>
</body></html>
"""
