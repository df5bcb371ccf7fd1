import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

import planner
from costmodel.base.errors import InputError
from costmodel.domain.hardware import Gpu
from planner.examples import example_workload
from planner.files.profiles import parse_profile, profile_names
from planner.files.schemas import SCHEMAS, attribute_docs, schema
from planner.files.workload_reading import parse_workload

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
    of_gpu = {**sections["GpuSection"]["properties"], **sections["EmbeddingSection"]["properties"]}
    assert of_gpu["kernel_latency"]["description"] == "Duration of a kernel that does nothing."
    for name, text in attribute_docs(Gpu).items():
        assert name == "gemm" or of_gpu[name]["description"] == text
    assert "description" not in of_gpu["num_sms"]  # its name says it


@pytest.mark.parametrize(
    ("line", "follows"),
    [
        ("dense: {bottom_mlp: [4], top_mlp: [4, 1]}", True),
        ("dense: {bottom_mlp: []}", True),
        ("dense: {bottom_mlp: [0]}", False),
        ("dense: {bottom_mlp: [2_000_000]}", False),
        ("dense: {top_mlp: []}", False),
        ("defaults: {inputs: {zipf: 5.5}}", False),
        ("defaults: {inputs: {reuse_histogram: [1, 2], mean_hits: []}}", True),
        ("defaults: {inputs: {reuse_histogram: []}}", False),
        ("defaults: {inputs: {reuse_histogram: [1, -1]}}", False),
        ("defaults: {inputs: {unique_fraction: 0.5, num_lookups: 0.5}}", False),
        ("tables: [{name: '', num_embeddings: 8, embedding_dim: 8}]", False),
        ("tables: [{name: t, num_embeddings: 8, embedding_dim: 8, ranks: [0, 5]}]", True),
        ("tables: [{name: t, num_embeddings: 8, embedding_dim: 8, ranks: [-1]}]", False),
        ("tables: [{name: t, num_embeddings: 8, embedding_dim: 8, ranks: [4096]}]", False),
    ],
)
def test_items_of_lists_are_limited_as_the_reader_does(line: str, *, follows: bool) -> None:
    tables = "tables: [{name: t, num_embeddings: 8, embedding_dim: 8}]"
    text = line if line.startswith("tables") else f"{line}\n{tables}"
    validator = Draft202012Validator(schema("workload"))
    assert validator.is_valid(yaml.safe_load(text)) is follows
    if follows:
        parse_workload(text, "tables.yaml")
    else:
        with pytest.raises(InputError):
            parse_workload(text, "tables.yaml")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tile_efficiency: [", "tile_efficiency: [1, "),
        ("max_efficiency: 0", "max_efficiency: 11"),
        ("shapes: [[256, 4096], ", "shapes: [[256, 4096, 1], "),
    ],
)
def test_so_are_those_of_a_profile(before: str, after: str) -> None:
    text = (PROFILES / "h100-sxm.yaml").read_text("utf-8")
    assert before in text
    changed = text.replace(before, after, 1)
    assert not Draft202012Validator(schema("profile")).is_valid(yaml.safe_load(changed))
    with pytest.raises(InputError):
        parse_profile(changed, "mine.yaml")


def test_a_written_plan_follows_its_schema(tmp_path: Path) -> None:
    planned = planner.plan(example_workload(4), gpus=2, max_plans=20)
    planned.save(tmp_path / "plan.json")
    written = json.loads((tmp_path / "plan.json").read_text("utf-8"))
    Draft202012Validator(schema("plan")).validate(written)
    written["tables"][0]["shards"] = []
    with pytest.raises(ValidationError):
        Draft202012Validator(schema("plan")).validate(written)
