"""Charts: Vega-Lite specifications as plain data, drawn by Vega, which an extra installs.

A page has Vega bundled into it (vl-convert-python carries the JavaScript), so that it opens without
a network; in a notebook specifications are Altair's charts.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import Any, TypeAlias

from costmodel.base.errors import InputError, MissingDependencyError
from costmodel.base.units import MS, Seconds
from planner.files.disk import make_folder, user_path, write_text
from planner.show.format import duration

Spec: TypeAlias = Mapping[str, Any]
"""A Vega-Lite specification, or one of Vega where ``$schema`` says so."""
Chart: TypeAlias = Any
"""A chart of Altair's."""

VEGA_LITE = "https://vega.github.io/schema/vega-lite/v6.json"
VEGA = "https://vega.github.io/schema/vega/v6.json"
"""Name of the format; nothing is loaded from there."""
EXTRA = "page"


def spec(rows: Sequence[Mapping[str, Any]], **parts: Any) -> Spec:  # noqa: ANN401 - parts of a specification
    """Return a Vega-Lite specification of some rows, as wide as the page."""
    wide = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    return {"$schema": VEGA_LITE, "data": {"values": list(rows)}, **wide, **parts}


def field(name: str, title: str, kind: str = "quantitative", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    """Return the encoding of a column, under a title that people read."""
    return {"field": name, "type": kind, "title": title, **more}


def layer(mark: object, **encoding: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    """Return one layer of a chart: a mark and its encoding."""
    return {"mark": mark, "encoding": encoding}


def timed(seconds: Seconds, **row: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    """Return a chart's row with a time in ms, as a number and as text."""
    return {**row, "ms": seconds / MS, "text": duration(seconds)}


def tooltip(**titles: str) -> list[dict[str, Any]]:
    """Return the tooltip's columns, given as column=title."""
    return [field(name, title, "nominal") for name, title in titles.items()]


def chart(drawn: Spec) -> Chart:
    """Return a specification as a chart of Altair's, which notebooks show.

    Raises
    ------
    MissingDependencyError
        Altair is not installed.

    """
    try:
        import altair as alt
    except ImportError:
        raise MissingDependencyError("altair", "a chart", EXTRA) from None
    return alt.Chart.from_dict({**drawn, "width": 640})


def check_library() -> None:
    """Raise MissingDependencyError if a page could not be made, before any work.

    Raises
    ------
    MissingDependencyError
        The library that carries Vega is not installed.

    """
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        raise MissingDependencyError("vl-convert-python", "a page", EXTRA) from None


@cache
def vega_bundle() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script that loads nothing from elsewhere.

    It is kept in the user's cache, as making it takes two seconds.
    """
    check_library()
    import vl_convert

    folder = user_path(os.environ, "XDG_CACHE_HOME", ".cache")
    kept = folder and folder / "planner" / f"vega-{version('vl-convert-python')}.js"
    if kept:
        with suppress(OSError, UnicodeDecodeError):  # not there yet, or cannot be read
            return kept.read_text(encoding="utf-8")
    newest = vl_convert.get_vegalite_versions()[-1]
    # its stub has the snippet, which may be left out, as needed
    made: str = vl_convert.javascript_bundle(vl_version=newest)  # type: ignore[call-arg]
    bundle = made.replace("</script", r"<\/script")
    if kept:
        with suppress(InputError):  # it is made again next time
            make_folder(kept.parent)
            write_text(kept, bundle)
    return bundle
