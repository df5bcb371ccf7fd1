import dataclasses
import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from machines import machine
from pydantic import BaseModel

from costmodel.base.errors import InputError, Problem
from costmodel.domain.hardware import Topology
from costmodel.domain.workload import (
    DenseModel,
    EmbeddingTable,
    Workload,
)
from costmodel.inputs.distribution import InputDistribution, ReuseHistogram, UniqueFraction, Zipf
from planner.files import workload_reading
from planner.files import workload_schema as schema
from planner.files.schemas import schema as json_schema
from planner.files.workload_reading import (
    load_workload,
    parse_workload,
    read_workload,
    refused,
)
from planner.show.error_text import render_error
from sharders.problem.options import refusals

SHIPPED = sorted((Path(__file__).parents[3] / "bench" / "workloads").glob("*.yaml"))
TABLE = "{name: a, num_embeddings: 100, embedding_dim: 16}"


def problems_of(text: str) -> list[Problem]:
    with pytest.raises(InputError) as caught:
        parse_workload(text, "tables.yaml")
    return list(caught.value.problems)


def problem_of(text: str) -> tuple[str, int | None, int | None, str | None]:
    (problem,) = problems_of(text)
    return problem.message, problem.line, problem.column, problem.hint


def table_of(fields: str, top: str = "") -> EmbeddingTable:
    row = f"{{name: a, num_embeddings: 100, embedding_dim: 16, {fields}}}"
    return parse_workload(f"{top}\ntables: [{row}]", "x").tables[0]


def test_what_a_file_does_not_say_is_the_default() -> None:
    table = EmbeddingTable(name="a", num_embeddings=100, embedding_dim=16)
    assert parse_workload(f"tables: [{TABLE}]", "x") == Workload(tables=(table,))


def test_many_tables_like_one_are_numbered() -> None:
    text = "tables: [{name: t, count: 3, num_embeddings: 10, embedding_dim: 4}]"
    tables = parse_workload(text, "w.yaml").tables
    assert [each.name for each in tables] == ["t_0", "t_1", "t_2"]
    assert {each.num_embeddings for each in tables} == {10}
    one = parse_workload(text.replace("count: 3", "count: 1"), "w.yaml").tables
    assert [each.name for each in one] == ["t"]
    with pytest.raises(InputError, match="features of their own"):
        parse_workload(text.replace("count: 3", "count: 3, feature_names: [f]"), "w.yaml")


def test_defaults_hold_for_tables_that_do_not_say() -> None:
    text = """\
defaults: {embedding_dim: 64, pooling_factor: 3}
tables:
  - {name: a, num_embeddings: 10}
  - {name: b, num_embeddings: 10, embedding_dim: 32}
"""
    first, second = parse_workload(text, "x").tables
    assert (first.embedding_dim, second.embedding_dim) == (64, 32)
    assert (first.pooling_factor, second.pooling_factor) == (3.0, 3.0)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("uniform", Zipf(exponent=0.0)),
        ("{zipf: 1.2}", Zipf(exponent=1.2)),
        ("{zipf: 1, hot_rows_first: true}", Zipf(exponent=1.0, hot_rows_first=True)),
        # 2 lookups per sample, 8 samples
        ("{unique_fraction: 0.3}", UniqueFraction(fraction=0.3, num_lookups=16.0)),
        ("{unique_fraction: 0.3, num_lookups: 99}", UniqueFraction(fraction=0.3, num_lookups=99)),
        ("{reuse_histogram: [3, 1]}", ReuseHistogram(row_shares=(3.0, 1.0), num_lookups=16.0)),
        (
            """{reuse_histogram: [3, 0, 1], mean_hits: [1, 2, 3.5], num_lookups: 9,
            range_lookups: [2, 1], range_rows: [1, 1]}""",
            ReuseHistogram(
                row_shares=(3.0, 0.0, 1.0),
                num_lookups=9,
                mean_hits=(1.0, 2.0, 3.5),
                range_lookups=(2.0, 1.0),
                range_rows=(1.0, 1.0),
            ),
        ),
    ],
)
def test_inputs(inputs: str, expected: InputDistribution) -> None:
    table = table_of(f"pooling_factor: 2, inputs: {inputs}", "local_batch_size: 8")
    assert table.inputs == expected


@pytest.mark.parametrize(("batch", "lookups"), [(1, 1.0), (8, 8.0)])
def test_lookups_that_were_counted_are_a_batch_s_unless_told(batch: int, lookups: float) -> None:
    table = table_of("inputs: {unique_fraction: 0.3}", f"local_batch_size: {batch}")
    assert table.inputs == UniqueFraction(fraction=0.3, num_lookups=lookups)


def test_all_problems_are_reported_at_once_in_order() -> None:
    text = """\
local_batch_size: 0
optimizer: sdg
dense: {top_mlp: [0], interaction: 3}
tables:
  - {name: a, num_embedings: 5, num_embeddings: -1, embedding_dim: 30}
  - {name: a, num_embeddings: 1e6, embedding_dim: 16}
"""
    assert [(p.line, p.column, p.message) for p in problems_of(text)] == [
        (1, 19, "`local_batch_size` must be at least 1, got 0"),
        (2, 12, "unknown optimizer `sdg`"),
        (3, 18, "layer widths must be at least 1"),
        (3, 36, "`interaction` must be one of dot, cat, dcn_v2, got the number 3"),
        (5, 15, "unknown field `num_embedings`"),
        (5, 49, "`num_embeddings` must be at least 1, got -1"),
        (5, 68, "`embedding_dim` must be a multiple of 4, got 30"),
        (6, 12, "table `a` twice"),
        (6, 31, "`num_embeddings` must be a whole number, got the text `1e6`"),
    ]


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("1,000,000", "a comma ends a number; write 1_000_000"),
        ("1,000", "a comma ends a number; write 1_000"),
        ("40M", "YAML reads this as text; write 40_000_000"),
        ("4k", "YAML reads this as text; write 4_000"),
        ("1e6", "YAML reads this as text; write 1_000_000"),
        ("many", None),
    ],
)
def test_how_a_number_is_written_is_said_beside_other_mistakes(
    written: str, hint: str | None
) -> None:
    row = f"{{name: a, num_embeddings: {written}, embedding_dim: 30}}"
    first, second = problems_of(f"tables: [{row}]")
    message = f"`num_embeddings` must be a whole number, got the text `{written}`"
    assert (first.message, first.hint) == (message, hint)
    assert second.message == "`embedding_dim` must be a multiple of 4, got 30"


@pytest.mark.parametrize(
    ("written", "hint"), [("4k", "YAML reads this as text; write 4_096"), ("many", None)]
)
def test_k_of_a_batch_is_what_sweep_takes_it_for(written: str, hint: str | None) -> None:
    problem, *_ = problems_of(f"local_batch_size: {written}\ntables: [{TABLE}]")
    assert problem.hint == hint


@pytest.mark.parametrize("name", ["float32", "torch.float32", "FP32"])
def test_data_types_of_torch_have_a_suggestion(name: str) -> None:
    said = problem_of(f"defaults: {{data_type: {name}}}\ntables: [{TABLE}]")
    assert said == (f"unknown data type `{name}`", 1, 23, "did you mean `fp32`?")


def test_two_tables_of_one_name_are_one_problem() -> None:
    line = "  - {name: a, num_embeddings: 10, embedding_dim: 16}\n"
    found = [(p.line, p.column, p.message) for p in problems_of(f"tables:\n{line}{line}")]
    assert found == [(3, 12, "table `a` twice")]


@pytest.mark.parametrize(
    ("setting", "place"),
    [("restore_site: 2", (1, 15)), ("pipeline: semi_sync", (1, 11))],
)
def test_what_does_not_go_together_is_shown_where_it_can_be_changed(
    setting: str, place: tuple[int, int]
) -> None:
    rest = f"dense: {{top_mlp: [8, 1]}}\ndefaults: {{stash_weights: true}}\ntables: [{TABLE}]"
    assert problem_of(f"{setting}\n{rest}")[1:3] == place


def test_weights_may_come_back_with_any_layer_of_the_top_mlp() -> None:
    deep = "restore_site: 6\ndense: {top_mlp: [8, 8, 8, 8, 8, 8, 1]}"
    assert parse_workload(f"{deep}\ntables: [{TABLE}]", "x").restore_site == 6


@pytest.mark.parametrize(
    ("fields", "message", "hint"),
    [
        ("num_embedings: 3", "unknown field `num_embedings`", "did you mean `num_embeddings`?"),
        ("rows: 3", "unknown field `rows`", "write `num_embeddings`"),
        (
            "pooling_factor: 1e1",
            "`pooling_factor` must be a number, got the text `1e1`",
            "YAML reads this as text; write 10",
        ),
        (
            "pooling_factor: 1e300",
            "`pooling_factor` must be a number, got the text `1e300`",
            "YAML reads this as text; write 1.000000e+300",
        ),
        (
            "min_shard_dim: 8.0",
            "`min_shard_dim` must be a whole number, got the number 8.0",
            "write 8",
        ),
        ("min_shard_dim: 7", "`min_shard_dim` must be a multiple of 4, got 7", "write 4 or 8"),
        ("min_shard_dim: 3", "`min_shard_dim` must be a multiple of 4, got 3", "write 4"),
        ("min_shard_dim: 1234567.5",
         "`min_shard_dim` must be a whole number, got the number 1234567.5", "write 1_234_568"),
        ("min_shard_dim: 1.0e+15",
         "`min_shard_dim` must be a whole number, got the number 1000000000000000.0", None),
        ("min_shard_dim: 2.00000001e+20",
         "`min_shard_dim` must be a whole number, got the number 2e+20", None),
        (f"min_shard_dim: {2**63 - 1}",
         "`min_shard_dim` must be at most 65,536, got 9,223,372,036,854,775,807", None),
        (f"min_shard_dim: {2**63}",
         f"`min_shard_dim` must be less than or equal to {2**63 - 1}, got the number {2**63}",
         None),
        ("pooling_factor: 1e15", "`pooling_factor` must be a number, got the text `1e15`",
         "YAML reads this as text; write 1000000000000000.0"),
        ("pooling_factor: '1.5'", "`pooling_factor` must be a number, got the text `1.5`",
         "YAML reads this as text; write 1.5"),
        (f"pooling_factor: {'x' * 40}",
         f"`pooling_factor` must be a number, got the text `{'x' * 40}`", None),
        (f"pooling_factor: {'x' * 41}",
         f"`pooling_factor` must be a number, got the text `{'x' * 37}...`", None),
        ("pooling_factor: 1.0e+7", "`pooling_factor` must be at most 1,000,000, got 10,000,000.0",
         "these are ids per sample, not per batch"),
        ("ranks: 3", "`ranks` must be a list, got the number 3", "write [3]"),
        ("ranks: ~", "`ranks` must be a list, got nothing", None),
        ("ranks: {a: 1}", "`ranks` must be a list, got a mapping", None),
        ("ranks: [1, 1]", "`ranks` must be different numbers from 0 on, got 1, 1", None),
        ("ranks: [-1]", "`ranks` must be different numbers from 0 on, got -1", None),
        ("ranks: [1.0]", "an item of `ranks` must be a whole number, got the number 1.0",
         "write 1"),
        ("placement: [1]", "unknown field `placement`", "write `ranks`"),
        ("pooling_factor: -2", "`pooling_factor` must be above 0, got -2.0", None),
        ("pooling_factor: .nan", "`pooling_factor` must be above 0, got nan", None),
        ("weighted: 'true'", "`weighted` must be true or false, got the text `true`",
         "write it without quotes"),
        ("feature_names: f", "`feature_names` must be a list, got the text `f`", "write [f]"),
        ("feature_names: [no]", "an item of `feature_names` must be text, got False",
         'YAML reads no as False; write "no"'),
        ("feature_names: [[a]]", "an item of `feature_names` must be text, got a list", None),
        ("sharding_types: [table_wize]", "unknown sharding type `table_wize`",
         "did you mean `table_wise`?"),
        ("compute_kernels: [fused_uvn]", "unknown compute kernel `fused_uvn`",
         "did you mean `fused_uvm`?"),
        ("constraints: {ranks: [0]}", "unknown field `constraints`",
         "write what it holds, such as `sharding_types`, as fields of the table"),
        ("data_type: FP16", "unknown data type `FP16`", "did you mean `fp16`?"),
        ("pooling: off", "`pooling` must be one of sum, mean, none, got False",
         "YAML reads off as False"),
        ("inputs: {zipf: 9}", "zipf exponent must be in [0, 5], got 9.0", None),
        ("inputs: {}", "`inputs` needs exactly one of zipf, reuse_histogram and unique_fraction",
         None),
        ("inputs: {zipf: 1, unique_fraction: 0.5}",
         ("`inputs` needs exactly one of zipf, reuse_histogram and unique_fraction, got zipf and "
          "unique_fraction"), None),
        ("inputs: unifrom", "`inputs` must be a mapping, got the text `unifrom`", None),
    ],
)  # fmt: skip
def test_a_problem_of_a_table(fields: str, message: str, hint: str | None) -> None:
    text = f"tables:\n  - name: a\n    num_embeddings: 8\n    embedding_dim: 8\n    {fields}\n"
    found, line, _, found_hint = problem_of(text)
    assert (found, line, found_hint) == (message, 5, hint)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (f"- {TABLE}", "a workload must be a mapping, got a list",
         "put the tables under a `tables:` key"),
        (f"tables: [{TABLE}]\nbatch_size: 3", "unknown field `batch_size`",
         "write `local_batch_size`: samples per GPU and step"),
        (f"tables: [{TABLE}]\nglobal_batch_size: 3", "unknown field `global_batch_size`",
         "write `local_batch_size`: the global batch size over the number of GPUs"),
        ("tables: [{name: a, num_embeddings: 8, embedding_dim: 8, unique_fraction: 0.2}]",
         "unknown field `unique_fraction`", "write `inputs: {unique_fraction: ...}`"),
        (f"tables: [{TABLE}]\npipelin: none", "unknown field `pipelin`",
         "did you mean `pipeline`?"),
        (f"tables: [{TABLE}]\ndefualts: {{}}", "unknown field `defualts`",
         "did you mean `defaults`?"),
        (f"tables: [{TABLE}]\nindex_bytes: 5",
         "`index_bytes` must be one of 4, 8, got the number 5", None),
        (f"tables: [{TABLE}]\ncomms: {{forward: fp12}}", "unknown data type `fp12`",
         "did you mean `fp32`?"),
        (f"tables: [{TABLE}]\nname: no", "`name` must be text, got False",
         'YAML reads no as False; write "no"'),
        ("tables: 3", "`tables` must be a list",
         "tables: [{name: ..., num_embeddings: ..., embedding_dim: ...}]"),
        ("tables: []", "`tables` is empty",
         "tables: [{name: ..., num_embeddings: ..., embedding_dim: ...}]"),
        ("tables:", "`tables` is empty",
         "tables: [{name: ..., num_embeddings: ..., embedding_dim: ...}]"),
        ("tables: [{name: a, num_embeddings: 8, embedding_dim: 100_000}]",
         "`embedding_dim` must be at most 65,536, got 100,000",
         "embedding_dim 100,000 and num_embeddings 8: swapped?"),
        ("tables: [{name: a, num_embeddings: 100_000, embedding_dim: 100_000}]",
         "`embedding_dim` must be at most 65,536, got 100,000", "these are the numbers of one row"),
        ("tables: [3]", "an item of `tables` must be a mapping, got the number 3", None),
        ("tables: [{name: a, embedding_dim: 4}]", "missing field `num_embeddings` in table `a`",
         "give it here or under `defaults`"),
        ("tables: [{num_embeddings: 4, embedding_dim: 4}]", "missing field `name`", None),
    ],
)  # fmt: skip
def test_a_problem_of_the_file(text: str, message: str, hint: str | None) -> None:
    found, _, _, found_hint = problem_of(text)
    assert (found, found_hint) == (message, hint)


def test_as_many_tables_as_are_allowed_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_reading, "MOST_TABLES", 2)
    rows = [f"{{name: {name}, num_embeddings: 8, embedding_dim: 8}}" for name in "abc"]
    assert len(parse_workload(f"tables: [{', '.join(rows[:2])}]", "x").tables) == 2
    said = problem_of(f"tables: [{', '.join(rows)}]")[0]
    assert said == "`tables` has 3 tables, and at most 2 can be"


def test_tables_without_a_name_are_no_two_of_one_name() -> None:
    row = "{num_embeddings: 8, embedding_dim: 8}"
    said = [problem.message for problem in problems_of(f"tables: [{row}, {row}]")]
    assert said == ["missing field `name`"] * 2


def test_a_bad_default_is_one_problem_however_many_tables() -> None:
    text = """\
defaults: {embedding_dim: 6}
tables:
  - {name: a, num_embeddings: 1}
  - {name: b, num_embeddings: 1}
"""
    assert problem_of(text) == (
        "`embedding_dim` must be a multiple of 4, got 6", 1, 27, "write 4 or 8",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "domain", "renamed"),
    [
        (schema.Table, EmbeddingTable, {}),
        (schema.Dense, DenseModel, {}),
        (schema.WorkloadFile, Workload, {"comms_forward": "comms", "comms_backward": "comms"}),
    ],
)
def test_the_schema_has_every_field_of_the_domain(
    model: type[BaseModel], domain: type, renamed: dict[str, str]
) -> None:
    public = [f.name for f in dataclasses.fields(domain) if not f.name.startswith("_")]
    named = {renamed.get(name, name) for name in public}
    assert set(model.model_fields) - {"defaults", "count"} == named


def test_every_field_in_the_schema_is_described_and_closed() -> None:
    whole = json_schema("workload")
    Draft202012Validator.check_schema(whole)
    for part in (whole, *whole["$defs"].values()):
        if part.get("type") == "object":
            assert part["additionalProperties"] is False
            for name, field in part["properties"].items():
                assert "description" in field or "$ref" in field, name


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_workloads_follow_the_schema(path: Path) -> None:
    data = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    Draft202012Validator(json_schema("workload")).validate(data)
    assert load_workload(path).name == path.stem


def test_856_tables_are_parsed_once_and_in_c(parsers: list[type]) -> None:
    load_workload(next(path for path in SHIPPED if path.stem == "open_856"))
    (parser,) = parsers
    assert issubclass(parser, yaml.CSafeLoader)


def test_json_files_load_too() -> None:
    text = json.dumps({"tables": [{"name": "a", "num_embeddings": 3, "embedding_dim": 4}]})
    assert parse_workload(text, "x.json").tables[0].num_embeddings == 3


REFUSED = """\
error: table `b` cannot be on rank 7: there is none
   --> tables.yaml:4:22
    |
  4 |   - {name: b, ranks: [1, 7]}
    |                      ^^^^^^ there are ranks 0 to 3
error: table `c` cannot be on ranks [0, 1] and no others
   --> tables.yaml:6:12
    |
  6 |     ranks: [0, 1]
    |            ^^^^^^ ranks that types take: table_wise 1
error: tables.yaml has 2 problems; nothing was done
"""


def test_constraints_that_leave_nothing_are_shown_where_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "tables.yaml"
    file.write_text(
        "defaults: {num_embeddings: 8, embedding_dim: 8, sharding_types: [table_wise]}\n"
        "tables:\n"
        "  - {name: a}\n"
        "  - {name: b, ranks: [1, 7]}\n"
        "  - name: c\n"
        "    ranks: [0, 1]\n"
    )
    workload, document = read_workload(file)
    ranks = Topology(hardware=machine(), world_size=4, local_world_size=4)
    error = refused(workload, document, refusals(workload, ranks))
    shown = render_error(error).replace(str(file), "tables.yaml")
    assert f"{shown}\n" == REFUSED
