"""Run by ``check_wheel`` with an installed wheel: every module imports, and commands work."""

import importlib
import json
import os
import pkgutil
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import costmodel
import planner
import sharders

EXTRAS = {"fbgemm_gpu", "optuna", "pulp", "pyarrow", "pytest", "scipy", "torch", "torchrec"}
"""What modules may miss: packages of extras that are not installed here."""
NEEDED = ("click", "highspy", "joblib", "numpy", "pydantic", "PyYAML", "rich")
"""What the wheel alone brings along."""
PLAN = "plan.json"
TIME_LIMIT = "0.3s"
"""Of searches that are not told another: that they work is tried, not how well they search."""


def import_everything() -> int:
    """Import every module of the wheel; return how many there are."""
    count = 0
    for package in (costmodel, sharders, planner):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name == "planner.__main__":
                continue
            try:
                importlib.import_module(found.name)
            except ModuleNotFoundError as error:
                if (error.name or "").split(".")[0] not in EXTRAS:
                    raise
            count += 1
    return count


def run(*arguments: str) -> str:
    """Return what a command of the planner prints, as a user would run it."""
    command = [Path(sys.executable).with_name("planner"), *arguments]
    environment = {**os.environ, "PLANNER_TIME_LIMIT": TIME_LIMIT}
    done = subprocess.run(
        command, check=False, capture_output=True, encoding="utf-8", env=environment
    )
    if done.returncode:
        sys.exit(f"planner {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def answer(*arguments: str) -> dict[str, Any]:
    """Return the JSON answer of a command."""
    result: dict[str, Any] = json.loads(run(*arguments, "--json"))
    return result


def engine() -> str:
    """Return what ``planner doctor`` says of the compiled search."""
    (check,) = (each for each in answer("doctor")["checks"] if each["name"] == "compiled search")
    return "compiled" if check["good"] else "interpreted"


def check_search(expected: str) -> None:
    """Plan as the README does; the search must be as expected: compiled, or interpreted."""
    plan = answer("plan", "dlrm_dcnv2.yaml", "--gpus", "8", "--time-limit", "3s")
    found = "compiled" if plan["compiled"] else "interpreted"
    print(f"  {plan['evaluated']} plans in 3 s, {plan['step_time_s']} s a step, {found}")
    if (engine(), found) != (expected, expected):
        sys.exit(f"the installed search is {engine()}, the plan's {found}; expected {expected}")


def check_sharders() -> None:
    """Compare all sharders: each one has a plan, or needs an extra."""
    compared = answer("compare", "tables.yaml", "--gpus", "2")
    found = {each["sharder"] for each in compared["results"]}
    without = {name: error["kind"] for name, error in compared["without_plan"].items()}
    if set(without.values()) - {"MissingDependencyError"} or not found:
        sys.exit(f"compare: {compared['without_plan']}")
    if found | set(without) != {*sharders.SHARDERS, "auto"}:
        sys.exit(f"compare ran {sorted(found)} alone")
    print(f"  {len(found)} sharders compared; without their extra: {', '.join(without)}")


def check_commands() -> None:
    """Explain and simulate a plan, and run the tour."""
    answer("plan", "tables.yaml", "--gpus", "2", "--output", PLAN)
    changes = answer("explain", PLAN)["choices"]
    run("simulate", PLAN, "--trace", "trace.json")
    run("demo", "--output", "demo")
    print(f"  explain: {len(changes)} choices; simulate and demo work")


def check_page() -> None:
    """Write a page, with what the extra `page` brings."""
    run("simulate", PLAN, "--html", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    if "<svg" not in page and "vega" not in page:
        sys.exit("the page has no chart")
    print(f"  a page of {len(page)} characters")


if __name__ == "__main__":
    if sys.argv[1] == "page":
        check_page()
    else:
        versions = ", ".join(f"{name} {version(name)}" for name in NEEDED)
        print(f"Python {platform.python_version()}: {versions}")
        print(f"  {import_everything()} modules imported")
        check_search(sys.argv[1])
        check_sharders()
        check_commands()
