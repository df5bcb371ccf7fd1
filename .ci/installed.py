"""Run by ``check_wheel`` with an installed wheel: every module imports, and a plan is made."""

import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import costmodel
import planner
import sharders

EXTRAS = {"fbgemm_gpu", "matplotlib", "optuna", "pyarrow", "pytest", "torch", "torchrec"}
"""What modules may miss: packages of extras that are not installed here."""


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


def answer(*arguments: str) -> dict[str, Any]:
    """Return the JSON answer of a command of the planner, as a user would run it."""
    command = [Path(sys.executable).with_name("planner"), *arguments, "--json"]
    run = subprocess.run(command, check=True, capture_output=True)
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def engine() -> str:
    """Return what ``planner doctor`` says of the compiled search."""
    (check,) = (each for each in answer("doctor")["checks"] if each["name"] == "compiled search")
    return "compiled" if check["good"] else "interpreted"


if __name__ == "__main__":
    expected = sys.argv[1]
    print(import_everything(), "modules imported, the search is", engine())
    plan = answer("plan", "dlrm_dcnv2.yaml", "--gpus", "8", "--time-limit", "3s")
    found = "compiled" if plan["compiled"] else "interpreted"
    print(plan["evaluated"], "plans in 3 s,", plan["step_time_s"], "s a step,", found)
    if (engine(), found) != (expected, expected):
        sys.exit(f"the installed search is {engine()}, the plan's {found}; expected {expected}")
