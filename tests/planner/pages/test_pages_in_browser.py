"""Pages in a real browser: every chart is drawn, nothing is loaded, sorting and zooming work.

Skipped where there is no Playwright (``pip install playwright``) or no Chromium.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from kineto_traces import two_ranks, write_folder

import planner
from planner.cli import main
from planner.editing.edit_server import EditServer
from planner.editing.edits import EditSession
from planner.examples import example_hardware, example_workload
from planner.files.plans import load_plan_file
from planner.show.format import duration
from planner.traces.replay.replay_page import replay_page
from planner.traces.replay.replay_report import replay_report
from planner.verbs.explanation import explained
from planner.verbs.loading import load_plan
from planner.views.plan_page import plan_page

pytestmark = pytest.mark.slow
QUICK = {"time_limit": 0.05}
MACHINE = {"gpus": 4, "hardware": example_hardware(), "baseline": "none"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("vl_convert", reason="the extra `page` is not installed")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if found is None:
        pytest.skip("there is no Chromium here")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[[str], Any]]:  # noqa: ANN401 - Playwright's
    """Open a page from disk, without a network; what it complains of fails the test."""
    said: list[str] = []
    asked: list[str] = []
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})

    def open_page(html: str) -> Any:  # noqa: ANN401 - Playwright's
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        charts = page.locator(".chart").count()
        page.wait_for_function(
            f"document.querySelectorAll('[data-drawn]').length === {charts}", timeout=20_000
        )
        return page

    yield open_page
    context.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def drawn(page: Any) -> list[int]:  # noqa: ANN401 - Playwright's
    """Return of every chart how many pixels of its canvas are coloured."""
    counted: list[int] = page.evaluate(
        """[...document.querySelectorAll(".chart canvas")].map(canvas => {
             const {width, height} = canvas, copy = new OffscreenCanvas(width, height);
             const context = copy.getContext("2d", {willReadFrequently: true});
             context.drawImage(canvas, 0, 0);
             const pixels = context.getImageData(0, 0, width, height).data;
             let coloured = 0;
             for (let i = 0; i < pixels.length; i += 4) {
               const red = pixels[i], green = pixels[i + 1], blue = pixels[i + 2];
               coloured += Math.max(red, green, blue) - Math.min(red, green, blue) > 40;
             }
             return coloured;
           })"""
    )
    return counted


def test_a_plan_is_drawn_sorted_filtered_and_zoomed(opened: Callable[[str], Any]) -> None:
    planned = planner.plan(example_workload(12), **MACHINE, **QUICK)
    explanation = planner.explain(planned, ["batch=4096"], time_limit=0.1)
    page = opened(plan_page(planned, planner.simulate(planned), explanation))
    coloured = drawn(page)
    assert len(coloured) == 7
    assert min(coloured) > 100
    path = page.locator("section", has_text="The critical path in order")
    assert path.locator("tbody tr").count() == len(explanation.path)
    tables = page.locator("section", has_text="Otherwise")
    rows = tables.locator("tbody tr")
    sizes = sorted(table.num_embeddings for table in planned.workload.tables)
    for smallest_first in (True, False):
        page.locator("th", has_text="Rows").click()
        shown = [
            int(text.replace(",", ""))
            for text in tables.locator("td:nth-child(2)").all_inner_texts()
        ]
        assert shown == (sizes if smallest_first else sizes[::-1])
    tables.locator("input[type=search]").fill("table_11")
    assert rows.locator("visible=true").count() == 1
    timeline = page.locator("section", has_text="Timeline of a step").locator("canvas")
    timeline.scroll_into_view_if_needed()
    before = timeline.evaluate("canvas => canvas.toDataURL()")
    timeline.hover(position={"x": 400, "y": 100})
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(300)
    assert timeline.evaluate("canvas => canvas.toDataURL()") != before


def test_sweeps_and_comparisons_are_drawn(opened: Callable[[str], Any]) -> None:
    sweep = planner.sweep(
        example_workload(6),
        gpus=(2, 4),
        hardware=("h100-sxm", "v100-nvlink"),
        sharder="naive",
        **QUICK,
    )
    page = opened(sweep.to_html())
    assert min(drawn(page)) > 100
    assert len(drawn(page)) == 2
    assert page.locator("tbody tr").count() == 4
    both = planner.compare(
        example_workload(6),
        gpus=4,
        hardware=example_hardware(),
        sharders=["naive", "cost_greedy"],
        **QUICK,
    )
    page = opened(both.to_html())
    assert min(drawn(page)) > 100
    assert page.locator("tbody tr").count() == 2


def test_a_replay_is_drawn(opened: Callable[[str], Any], tmp_path: Path) -> None:
    page = opened(replay_page(replay_report(write_folder(tmp_path / "traces", two_ranks()))))
    assert len(drawn(page)) == 2
    assert min(drawn(page)) > 100
    assert page.locator("section", has_text="Step by step").locator("tbody tr").count() == 2


def test_a_table_is_dragged_and_the_plan_saved(browser: Any, tmp_path: Path) -> None:  # noqa: ANN401
    heavy = {"sharding_types": ("table_wise",), "pooling_factor": 100.0}  # lookups decide
    tables = tuple(replace(table, **heavy) for table in example_workload(4).tables)
    workload = replace(example_workload(4), tables=tables, local_batch_size=8192)
    plan = tmp_path / "plan.json"
    machine = {"gpus": 4, "hardware": "h100-sxm", "sharder": "naive", "baseline": "none"}
    planner.plan(workload, **machine, **QUICK).save(plan)
    target = tmp_path / "edited.json"
    said: list[str] = []
    session = EditSession(file=load_plan_file(plan), planned=load_plan(plan), target=target)
    with EditServer(session) as server, browser.new_context() as context:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(server.url)
        before = page.locator("#step").inner_text()
        start = session.plan.tables[0].ranks[0]
        aim = (start + 1) % 4
        chip = page.locator(f'[data-rank="{start}"] [data-table="table_0"]')
        chip.drag_to(page.locator(f'[data-rank="{aim}"]'))
        page.locator(f'[data-rank="{aim}"] [data-table="table_0"]').wait_for()
        shown = page.locator("#step").inner_text()
        assert shown != before
        assert page.locator("#moves").inner_text() == "1"
        page.get_by_role("button", name="Save").click()
        page.get_by_text(f"Saved {target}").wait_for()
        server.shutdown()
        thread.join()
    again = load_plan(target)
    assert again.plan.table("table_0").ranks == (aim,)
    assert duration(again.report.step_time) == shown
    path = sum(row.seconds for row in explained(again).path)
    assert path == pytest.approx(again.report.modelled.seconds)
    assert said == []


def test_names_that_are_markup_are_text(opened: Callable[[str], Any]) -> None:
    name = "<b>x</b><script>console.log(1)</script>"
    table = planner.EmbeddingTable(name=name, num_embeddings=1000, embedding_dim=64)
    workload = planner.Workload(tables=(table,), local_batch_size=64, name=name)
    page = opened(planner.plan(workload, **MACHINE, **QUICK).to_html())
    assert page.locator("tbody td").first.inner_text() == name


def test_commands_write_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vl_convert", reason="the extra `page` is not installed")
    monkeypatch.chdir(tmp_path)
    Path("tables.yaml").write_text(
        "defaults: {embedding_dim: 64}\n"
        "tables: [{name: a, num_embeddings: 1000}, {name: b, num_embeddings: 9}]"
    )
    quick = ("--gpus", "2", "--time-limit", "50ms", "--sharder", "naive")
    plan = ("plan", "tables.yaml", *quick, "--baseline", "none")
    for command in (
        (*plan, "-o", "one.json"),
        (*plan, "--seed", "1", "-o", "two.json"),
        ("simulate", "one.json"),
        ("compare", "one.json", "two.json"),
        ("compare", "tables.yaml", *quick),
        ("sweep", "tables.yaml", *quick),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as done:
            main([*command, "--html", "page.html", "-q"])
        assert done.value.code == 0
        page = Path("page.html").read_text()
        assert page.startswith("<!DOCTYPE html>")
        assert 0.5e6 < len(page) < 3e6
        Path("page.html").unlink()


def test_without_the_library_a_command_says_which_extra_brings_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(SystemExit) as done:
        main(["plan", "missing.yaml", "--gpus", "2", "--html", "page.html"])
    assert done.value.code == 5
    assert "pip install '.[page]'" in capsys.readouterr().err
