"""A workload whose dense part is a list of operators: beside the layers' fields, in files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from dense_operators import listed_step

from costmodel.base.errors import InputError
from costmodel.domain.workload import DataType, DenseModel, EmbeddingTable, LaunchMode, Workload
from planner.files.dense import operators_data, save_operators
from planner.files.workload_reading import load_workload, parse_workload
from planner.files.workload_text import dump_workload, workload_data

TABLES = "tables: [{name: t, num_embeddings: 100, embedding_dim: 8}]\n"


def written(folder: Path, dense: str) -> Path:
    save_operators(listed_step(), folder / "dense.json")
    path = folder / "model.yaml"
    path.write_text(f"dense: {dense}\n{TABLES}")
    return path


def test_operators_are_in_a_file_beside_the_workload(tmp_path: Path) -> None:
    path = written(tmp_path, "{operators: dense.json, precision: bf16, launch: compiled}")
    dense = load_workload(path).dense
    assert dense.operators == listed_step()
    assert (dense.precision, dense.launch) == (DataType.BF16, LaunchMode.COMPILED)


def test_what_is_written_holds_the_operators_and_is_read_as_they_are() -> None:
    table = EmbeddingTable(name="t", num_embeddings=100, embedding_dim=8)
    dense = DenseModel(operators=listed_step(), precision=DataType.BF16)
    work = Workload(tables=(table,), dense=dense)
    assert set(workload_data(work)["dense"]) == {"precision", "optimizer", "operators"}
    assert parse_workload(dump_workload(work), "again") == work
    assert parse_workload(json.dumps(workload_data(work)), "again") == work


@pytest.mark.parametrize(
    ("dense", "column", "said"),
    [
        ("{operators: other.json}", 20, r"cannot be used \(.*other.json\): no such file"),
        ("{operators: model.yaml}", 20, r"cannot be used \(.*model.yaml:1\)"),
        ("{operators: 3}", 20, "`operators` must be text"),
        ("{operators: dense.json, top_mlp: [1, 1]}", 8, "stand for the layers: top_mlp cannot be"),
    ],
)
def test_what_is_wrong_is_named_where_it_is_asked_for(
    tmp_path: Path, dense: str, column: int, said: str
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        load_workload(written(tmp_path, dense))
    assert [(each.line, each.column) for each in caught.value.problems] == [(1, column)]


def test_operators_in_the_file_itself_are_checked_there() -> None:
    data = operators_data(listed_step())
    wrong = replace(listed_step().operators[0], inputs=())
    data["operators"][0] = {"name": wrong.name, "direction": "forward"}
    text = json.dumps({"dense": {"operators": data}, "tables": [{"name": "t"}]}, indent=1)
    with pytest.raises(InputError) as caught:
        parse_workload(text, "given")
    first = caught.value.problems[0]
    assert "`aten::mm` needs an output and 2 inputs" in first.message
    assert first.line == 3
    data["operators"][0]["name"] = 7
    with pytest.raises(InputError, match="`name` must be text, got the number 7"):
        parse_workload(json.dumps({"dense": {"operators": data}}), "given")
