"""Every number of every file has bounds, so that none makes another impossible."""

import ast
import json
import re
from collections.abc import Callable, Iterator
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

import planner
from costmodel.base.errors import InputError
from planner.files.json_text import dump_json
from planner.files.plan_memory import PlanMemory
from planner.files.plans import PlanFile, dump_plan_file, parse_plan_file
from planner.files.profiles import parse_profile
from planner.files.schemas import SCHEMAS, schema
from planner.files.workload_reading import parse_workload
from planner.sweeping.kept import _KeptSweep
from planner.verbs.loading import judge

ROOT = Path(__file__).parents[3]
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
Keys = tuple[str | int, ...]
LOWER, UPPER = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}
IMPOSSIBLE = (-1e30, 1e30, nan, inf)
FEW = 2
"""Items of a list that are tried: the others are of the same type."""
PARTS = 12
"""One part of all numbers of a profile is tried every time, and the others every night."""


def unbounded(node: object, bounds: frozenset[str], path: Keys = ()) -> Iterator[Keys]:
    """Yield where a schema has a number without a lower, or without an upper bound."""
    if isinstance(node, list):
        for number, each in enumerate(node):
            yield from unbounded(each, bounds, (*path, number))
    if not isinstance(node, dict):
        return
    own = bounds | node.keys() & (LOWER | UPPER)
    is_number = {"number", "integer"} & set(as_list(node.get("type")))
    if (
        is_number
        and "enum" not in node
        and "const" not in node
        and not (own & LOWER and own & UPPER)
    ):
        yield path
    for key, each in node.items():
        is_choice = key in {"anyOf", "allOf", "oneOf"}
        yield from unbounded(each, own if is_choice else frozenset(), (*path, key))


def as_list(given: object) -> list[object]:
    return given if isinstance(given, list) else [given]


@pytest.mark.parametrize("kind", [*SCHEMAS, "sweep"])
def test_every_number_of_a_schema_has_both_bounds(kind: str) -> None:
    described = _KeptSweep.model_json_schema() if kind == "sweep" else schema(kind)
    assert list(unbounded(described, frozenset())) == []


def test_a_number_without_bounds_would_be_found() -> None:
    found = unbounded({"properties": {"a": {"type": "number", "minimum": 0}}}, frozenset())
    assert list(found) == [("properties", "a")]


def leaves(node: object, path: Keys = ()) -> Iterator[Keys]:
    """Yield where numbers are, and texts that are numbers with units."""
    if isinstance(node, dict):
        for key, each in node.items():
            yield from leaves(each, (*path, key))
    elif isinstance(node, list):
        for number, each in enumerate(node[:FEW]):
            yield from leaves(each, (*path, number))
    elif (
        path[-1] != "schema_version" and not isinstance(node, bool) and number_of(node) is not None
    ):
        yield path


def number_of(value: object) -> float | None:
    if isinstance(value, int | float):
        return None if isinstance(value, bool) else value
    found = re.fullmatch(r"([0-9.]+) ?([A-Za-z/]+)", value) if isinstance(value, str) else None
    return float(found[1]) if found else None


def changed(document: Any, path: Keys, number: float) -> Any:  # noqa: ANN401 - plain data
    """Return a document with another number at a place, in the same unit."""
    if not path:
        unit = document.split()[-1] if isinstance(document, str) else None
        return number if unit is None else f"{number:g} {unit}"
    copied = document.copy()
    copied[path[0]] = changed(document[path[0]], path[1:], number)
    return copied


def a_workload() -> Any:  # noqa: ANN401 - plain data
    made = yaml.safe_load((CORPUS / "rich.yaml").read_text("utf-8"))
    made |= {"gradient_accumulation_steps": 2, "length_spread": 0.1, "restore_site": 1}
    made["tables"][0] |= {"pooling_std": 1.0, "longest_bag": 9.0, "bags_per_sample": 0.5}
    return made


def a_plan(hardware: str = "h100-sxm") -> PlanFile:
    workload = parse_workload(json.dumps(a_workload()), "tables.json")
    planned = planner.plan(workload, gpus=2, baseline="none", max_plans=1)
    return PlanFile(
        plan=planned.plan, workload=workload, hardware=hardware, seed=3, step_time=1e-3,
        memory=PlanMemory(rank_bytes=9e9, host_bytes=9e9, withheld_bytes=(0.0, 1.0)),
        torchrec={
            "device": "cuda", "local_world_size": 2,
            "tables": {"a": {"module": "m", "table": "a", "cache": {"reserved_memory": 1.0}}},
        },
    )  # fmt: skip


def a_profile() -> Any:  # noqa: ANN401 - plain data
    return yaml.safe_load((CORPUS / "profile.yaml").read_text("utf-8"))


def a_sweep() -> Any:  # noqa: ANN401 - plain data
    point = {
        "hardware": "h", "world_size": 2, "num_nodes": 1, "local_batch_size": 8,
        "gradient_accumulation_steps": 1, "step_time_s": 1.0, "step_time_low_s": 1.0,
        "step_time_high_s": 1.0, "gap": 0.1, "peak_memory_bytes": 1.0, "usable_memory_bytes": 2.0,
        "sharder": None, "reason": None, "plan_file": "p", "key": "k",
    }  # fmt: skip
    return {"schema_version": 2, "points": [point]}


FILES: dict[str, tuple[Callable[[], Any], Callable[[str], object]]] = {
    "workload": (a_workload, lambda text: parse_workload(text, "a.json")),
    "plan": (lambda: dump_plan_file(a_plan()), lambda text: parse_plan_file(text, "a.json")),
    "profile": (a_profile, lambda text: parse_profile(text, "a.yaml")),
    "sweep": (a_sweep, _KeptSweep.model_validate_json),
}


@pytest.mark.parametrize("kind", FILES)
def test_numbers_beyond_them_are_refused(kind: str) -> None:
    make, read = FILES[kind]
    document = make()
    read(json.dumps(document))
    accepted = []
    for path in leaves(document):
        for number in IMPOSSIBLE:
            text = json.dumps(changed(document, path, number))
            try:
                read(text if kind != "profile" else text.replace("NaN", ".nan"))
            except (InputError, ValidationError):
                continue
            accepted.append((path, number))
    assert accepted == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.nightly) for part in range(1, PARTS))]
)
def test_no_number_of_a_profile_makes_another_impossible(tmp_path: Path, part: int) -> None:
    """Whatever is read as a profile gives a report with numbers that JSON has."""
    document, path = a_profile(), tmp_path / "mine.yaml"
    path.write_text(json.dumps(document), "utf-8")
    file = a_plan(str(path))
    judged = 0
    for place in list(leaves(document))[part::PARTS]:
        for number in (1e-15, 10, 1e21):
            try:
                parse_profile(json.dumps(changed(document, place, number)), "mine.yaml")
            except InputError:
                continue
            path.write_text(json.dumps(changed(document, place, number)), "utf-8")
            dump_json(judge(file).to_dict())
            judged += 1
    assert judged > 6


def test_all_json_is_made_by_one_function() -> None:
    """That never writes NaN: no other of the planner's calls ``json.dump`` or ``json.dumps``."""
    calls = []
    for file in sorted((ROOT / "planner").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_call and node.func.attr in {"dump", "dumps", "JSONEncoder"}:
                owner = node.func.value
                if isinstance(owner, ast.Name) and owner.id == "json":
                    calls.append(str(file.relative_to(ROOT)))
    assert calls == ["planner/files/json_text.py"]
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_json({"step_time_s": nan})
