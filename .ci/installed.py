"""Run by ``check_wheel`` with an installed wheel: every module imports, and a plan is made."""

import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import costmodel
import planner
import sharders

EXTRAS = {"matplotlib", "optuna", "pyarrow", "pytest", "scipy", "torch", "torchrec", "fbgemm_gpu"}
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


def planned() -> dict[str, object]:
    """Return the JSON answer of ``planner plan``, as a user would ask for it."""
    planner_command = Path(sys.executable).with_name("planner")
    command = [planner_command, "plan", "dlrm_dcnv2.yaml", "--gpus", "8", "--time-limit", "3s"]
    answer = subprocess.run([*command, "--json"], check=True, capture_output=True)
    result: dict[str, object] = json.loads(answer.stdout)
    return result


if __name__ == "__main__":
    print(import_everything(), "modules imported")
    print("planned:", planned()["step_time_s"], "s a step")
