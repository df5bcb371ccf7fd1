"""The pages of the documentation's pictures: `python -m bench.pages`.

Makes the screenshots again (``bench.pictures`` tells when that is due). Needs the extra `page`,
Playwright and a Chromium.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from bench.lookalikes import LOOKALIKES
from bench.pictures import IMAGES, PLAN, ROOT, note
from planner.verbs.loading import load_plan

WORKLOADS = Path(__file__).parent / "workloads"
TRACES = Path(__file__).parents[2] / "shared" / "data" / "traces" / "dlrm8_v100"
"""A recorded run, where the data of the benches is; its picture is left as it is elsewhere."""
HARDWARE = "h100-sxm"
MACHINES = "a100-sxm-80gb,h100-sxm,h200-sxm"
SWEEP = ("--gpus", "4,8,16,32", "--hardware", MACHINES, "--time-limit", "3s")
"""The sweep of the documentation's picture."""
LOG = "sample_skeleton_train.csv"
"""The log of the documentation's picture (``bench.lookalikes``)."""
WIDTH, HEIGHT = 1200, 900
MOST_WAIT_MS = 60_000


@contextmanager
def browser() -> Iterator[Any]:
    """Yield a headless Chromium."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


def drawn(chromium: Any, file: Path, image: Path) -> list[str]:  # noqa: ANN401 - Playwright's
    """Open a page from disk and take a picture of it; return what the browser complained of."""
    said: list[str] = []
    page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(file.as_uri())
    charts = page.locator(".chart").count()
    page.wait_for_function(
        f"document.querySelectorAll('[data-drawn]').length === {charts}", timeout=MOST_WAIT_MS
    )
    page.screenshot(path=image, full_page=True)
    page.close()
    return said


def images(chromium: Any) -> None:  # noqa: ANN401 - Playwright's
    """Make the screenshots of the documentation: a page of every command that has one."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        tables = str((WORKLOADS / "dlrm_dcnv2.yaml").resolve())
        machine = ("--gpus", "8", "--hardware", HARDWARE)
        search = (*machine, "--time-limit", "10s")
        for name, arguments in {
            "plan": ("plan", tables, *search, "-o", "plan.json"),
            "explain": ("explain", "plan.json", "--time-limit", "20s"),
            "simulate": ("simulate", "plan.json"),
            "compare": ("compare", tables, *machine, "--time-limit", "30s"),
        }.items():
            _planner(folder, *arguments, "--html", f"{name}.html")
            _small(chromium, folder / f"{name}.html", name)
        shutil.copyfile(folder / "plan.json", PLAN)
        _inspected(chromium, folder)
        _planner(folder, "sweep", tables, *SWEEP, "--html", "sweep.html")
        _small(chromium, folder / "sweep.html", "sweep")
        if TRACES.is_dir():
            (folder / TRACES.name).symlink_to(TRACES.resolve())  # the page has its name as given
            _planner(folder, "replay", TRACES.name, "--html", "replay.html")
            _small(chromium, folder / "replay.html", "replay")
        whole = ("--sharder", "lookup_greedy", "--baseline", "none")
        _planner(folder, "plan", tables, *machine, *whole, "-o", "whole.json")
        _edited(chromium, folder / "whole.json")


def _inspected(chromium: Any, folder: Path) -> None:  # noqa: ANN401 - Playwright's
    """Take a picture of what ``inspect`` finds in a look-alike of a public log."""
    log = next(each for each in LOOKALIKES if each.file == LOG).make(folder)
    _planner(folder, "inspect", log.name, "--html", "inspect.html")
    _small(chromium, folder / "inspect.html", "inspect")


def _planner(folder: Path, *arguments: str) -> None:
    """Run a command of this checkout, whichever is installed."""
    command = [sys.executable, "-m", "planner", *arguments, "-q"]
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(  # noqa: S603 - ours
        command, cwd=folder, env=here, check=True, stdout=subprocess.DEVNULL
    )


def _small(chromium: Any, page: Path, name: str) -> None:  # noqa: ANN401 - Playwright's
    image = IMAGES / f"{name}-page.png"
    print(image.name, drawn(chromium, page, image))
    shrink(image)
    note(name)


def _edited(chromium: Any, plan_file: Path) -> None:  # noqa: ANN401 - Playwright's
    """Drag a block to another rank, and take a picture of it."""
    from planner.editing.edit_server import EditServer
    from planner.editing.edits import EditSession
    from planner.files.plans import load_plan_file

    image = IMAGES / "open-page.png"
    session = EditSession(
        file=load_plan_file(plan_file), planned=load_plan(plan_file), target=plan_file
    )
    with EditServer(session) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(server.url)
        chip = page.locator('[data-rank="0"] [draggable=true]').first
        chip.drag_to(page.locator('[data-rank="3"]'))
        page.locator("#moves", has_text="1").wait_for()  # the page allows no `eval` of functions
        page.screenshot(path=image, full_page=True)
        page.close()
        server.shutdown()
    shrink(image)
    note("open")


def shrink(image: Path) -> None:
    """Keep 256 colours: charts have few, and a repository keeps every version."""
    from PIL import Image

    with Image.open(image) as opened:
        small = opened.convert("P", palette=Image.Palette.ADAPTIVE, colors=256)
    small.save(image, optimize=True)


def main() -> None:
    """Make the screenshots."""
    with browser() as chromium:
        images(chromium)


if __name__ == "__main__":
    main()
