"""The pages of the documentation: their commands run, their links lead somewhere, nothing lacks."""

import re
import subprocess
from pathlib import Path

import pytest

import planner
from bench.documented import CHECKOUT, QUICK, ROOT, SHOWN, alike, blocks, run_page, shown_outputs
from planner.planned.report import STAGE_NAMES

PAGES = sorted(path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md"))
READ = (Path("README.md"), Path("CONTRIBUTING.md"), *PAGES)
PACKAGES = [Path(name, "README.md") for name in ("costmodel", "planner", "sharders")]
ALONE = {"XDG_CONFIG_HOME": "/nonexistent", "PLANNER_TIME_LIMIT": "40s"}
"""Settings of commands whose output is compared: on a busy machine, too, they come to their end."""


def text(page: Path) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def with_commands() -> list[Path]:
    return [page for page in READ if any(block.kind == "run" for block in blocks(text(page)))]


@pytest.mark.slow
@pytest.mark.parametrize("page", with_commands(), ids=str)
def test_a_reader_can_do_what_a_page_says(page: Path, tmp_path: Path) -> None:
    """From top to bottom, from an empty folder, to what the page shows."""
    try:
        ran = run_page(text(page), tmp_path, ALONE, QUICK)
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{error.cmd}\n{error.stdout}{error.stderr}")
    assert ran
    for shown, printed in shown_outputs(text(page), ran):
        assert alike(shown, printed), f"{page} shows\n{shown}\nfor what is\n{printed}"
    made = {path.name for path in (tmp_path / CHECKOUT).iterdir()} - set(SHOWN)
    assert len(made) == 1, "a page keeps to a folder of its own"


@pytest.mark.parametrize("page", READ, ids=str)
def test_every_command_is_run_or_says_why_not(page: Path) -> None:
    silent = [block.body for block in blocks(text(page)) if not block.kind]
    assert silent == []
    assert all(block.argument for block in blocks(text(page)) if block.kind == "not run")


def test_files_that_pages_link_to_exist() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.md"],  # noqa: S607 - the developer's git
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    pages = listed.stdout.split() or [str(page) for page in READ]
    missing = []
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", text(Path(page))):
            if "://" not in target:
                found = (ROOT / page).parent / target
                missing += [] if found.exists() else [f"{page}: {target}"]
    assert missing == []


@pytest.mark.parametrize("page", PACKAGES, ids=str)
def test_sources_that_a_package_page_names_exist(page: Path) -> None:
    named = set(re.findall(r"`([\w./-]+\.(?:py|pxd)|[\w.-]+(?:/[\w.-]+)*/)`", text(page)))
    folder = ROOT / page.parent

    def exists(name: str) -> bool:
        below = (path for path in folder.rglob(Path(name).name) if str(path).endswith(name))
        return (folder / name).exists() or (ROOT / name).exists() or any(below)

    assert len(named) > 3
    assert {name for name in named if not exists(name)} == set()


def test_the_map_has_every_folder() -> None:
    packages = (path.parent for path in (ROOT / "planner").rglob("__init__.py"))
    folders = {f"{path.relative_to(ROOT / 'planner')}/" for path in packages} - {"./"}
    assert folders <= set(re.findall(r"\| `([\w/]+/)` \|", text(Path("planner/README.md"))))


def test_the_page_of_the_search_has_every_folder() -> None:
    packages = (path.parent.name for path in (ROOT / "sharders").glob("*/__init__.py"))
    assert set(packages) == set(
        re.findall(r"^\| `(\w+)` \|", text(Path("sharders/README.md")), re.MULTILINE)
    )


def test_the_reference_has_every_public_name() -> None:
    page = text(Path("docs/reference/python.md"))
    documented = set(re.findall(r"^::: planner\.(\w+)$", page, re.MULTILINE))
    assert documented == set(planner.__all__) - {"__version__"}


def test_every_label_of_the_first_screen_is_explained() -> None:
    page = text(Path("docs/screen.md"))
    screen, _, rest = page.partition("<!-- end screen -->")
    explained = set(re.findall(r"^\| `([^`]+)` \|", rest, re.MULTILINE))
    labels = set(re.findall(r"^  ([a-z][a-z ]+?)  +[\d.]+ ?(?:%|[mu]?s)", screen, re.MULTILINE))
    assert {"step time", "baseline", "to gain", "unmeasured"} <= labels
    columns = re.findall(r"^  (Rank .*)$", screen, re.MULTILINE)
    labels |= set(re.split(r"  +", columns[0]))
    labels |= set(STAGE_NAMES.values())
    assert {label.split(",")[0] for label in labels} <= explained
