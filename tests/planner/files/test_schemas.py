import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

import planner
from costmodel.domain.hardware import Gpu
from planner.examples import example_workload
from planner.files.profiles import profile_names
from planner.files.schemas import SCHEMAS, attribute_docs, schema

PROFILES = Path(__file__).parents[3] / "planner" / "profiles"


def profile(name: str) -> Any:  # noqa: ANN401 - YAML
    return yaml.load((PROFILES / f"{name}.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_is_one(kind: str) -> None:
    Draft202012Validator.check_schema(schema(kind))


@pytest.mark.parametrize("name", profile_names())
def test_shipped_profiles_follow_theirs(name: str) -> None:
    Draft202012Validator(schema("profile")).validate(profile(name))


def test_a_size_without_a_unit_does_not() -> None:
    changed = profile("h100-sxm")
    changed["gpu"]["memory_bytes"] = "80"
    with pytest.raises(ValidationError):
        Draft202012Validator(schema("profile")).validate(changed)


def test_numbers_of_a_profile_are_described_as_in_the_domain() -> None:
    sections = schema("profile")["$defs"]
    named = ("GpuSection", "EmbeddingSection", "OperatorsSection", "UpdatesSection")
    of_gpu = {key: each for name in named for key, each in sections[name]["properties"].items()}
    assert of_gpu["kernel_latency"]["description"] == "Duration of a kernel that does nothing."
    for name, text in attribute_docs(Gpu).items():
        assert name == "gemm" or of_gpu[name]["description"] == text
    assert "description" not in of_gpu["num_sms"]  # its name says it


def test_a_written_plan_follows_its_schema(tmp_path: Path) -> None:
    planned = planner.plan(example_workload(4), gpus=2, max_plans=20)
    planned.save(tmp_path / "plan.json")
    written = json.loads((tmp_path / "plan.json").read_text("utf-8"))
    Draft202012Validator(schema("plan")).validate(written)
    written["tables"][0]["shards"] = []
    with pytest.raises(ValidationError):
        Draft202012Validator(schema("plan")).validate(written)
