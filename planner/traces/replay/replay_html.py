"""A replay as one self-contained page: the tables of the text, and a bar per stream."""

from collections.abc import Iterator
from html import escape

from planner.show.format import duration
from planner.traces.replay.breakdown import CATEGORIES, StreamUse
from planner.traces.replay.replay_report import ReplayReport
from planner.traces.replay.replay_text import replay_text

_WIDTH = 100
_COLORS = (
    *("#4477aa", "#66ccee", "#228833", "#ccbb44", "#bbbbbb"),
    *("#ee6677", "#aa3377", "#994455", "#997700"),
)
"""Paul Tol's bright and high-contrast schemes, told apart by colour-blind readers too."""
_WAITING = "#f3d6da"
_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; max-width: 70em; color: #222; }
pre { font: 13px/1.35 ui-monospace, monospace; }
.bar { display: flex; height: 1.2em; background: #f4f4f4; }
.row { display: grid; grid-template-columns: 12em 1fr; gap: 1em; margin: 2px 0; }
.key span { display: inline-block; margin-right: 1.2em; }
.key i { display: inline-block; width: 1em; height: 1em; margin-right: .4em; }
"""


def replay_html(report: ReplayReport) -> str:
    """Return the page."""
    text = "\n".join(line.plain for line in replay_text(report, _WIDTH))
    bars = "\n".join(_bars(report))
    title = escape(f"Replay of {report.source}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n{bars}\n"
        f"<pre>{escape(text)}</pre>\n</body></html>\n"
    )


def _bars(report: ReplayReport) -> Iterator[str]:
    if report.breakdown is None:
        return
    colors = dict(zip(CATEGORIES, _COLORS, strict=True)) | {"waiting for other ranks": _WAITING}
    yield '<p class="key">'
    for name, color in colors.items():
        yield f'<span><i style="background:{color}"></i>{escape(name)}</span>'
    yield "</p>"
    for use in report.breakdown.streams:
        yield f'<div class="row"><span>rank {use.rank} {escape(use.stream)}</span>'
        yield f'<div class="bar">{"".join(_parts(use, colors))}</div></div>'


def _parts(use: StreamUse, colors: dict[str, str]) -> Iterator[str]:
    busy = {name.value: seconds for name, seconds in use.busy.items()}
    busy["waiting for other ranks"] = use.waiting
    whole = sum(busy.values()) + use.idle
    for name, color in colors.items():
        seconds = busy.get(name, 0.0)
        if seconds > 0:
            share = 100 * seconds / whole
            label = escape(f"{name}: {duration(seconds)}", quote=True)
            yield f'<div style="width:{share:.3f}%;background:{color}" title="{label}"></div>'
