"""Records hold what their fields are declared to hold, or say which one does not, and why."""

from typing import Any

import numpy as np
import pytest

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType, DenseModel, EmbeddingTable, Optimizer, Workload


def table(**given: Any) -> EmbeddingTable:  # noqa: ANN401 - any field
    """Return a table of some fields, with defaults for the three it needs."""
    needed: dict[str, Any] = {"name": "t", "num_embeddings": 10, "embedding_dim": 8}
    return EmbeddingTable(**(needed | given))


@pytest.mark.parametrize(
    ("field", "given", "held"),
    [
        ("data_type", "fp16", DataType.FP16),
        ("optimizer", "adam", Optimizer.ADAM),
        ("optimizer", None, None),
        ("sharding_types", ["row_wise"], (ShardingType.ROW_WISE,)),
        ("sharding_types", (ShardingType.ROW_WISE,), (ShardingType.ROW_WISE,)),
        ("ranks", [np.int32(3), 1.0], (3, 1)),
        ("num_embeddings", np.uint8(200), 200),
        ("num_embeddings", 1e3, 1000),
        ("pooling_factor", np.float32(0.5), 0.5),
        ("pooling_factor", 2, 2),
        ("weighted", np.bool(1), True),
    ],
)
def test_values_become_what_the_field_holds(field: str, given: object, held: object) -> None:
    own = getattr(table(**{field: given}), field)
    assert own == held
    assert type(own) is type(held)
    if isinstance(held, tuple):
        assert list(map(type, own)) == list(map(type, held))


@pytest.mark.parametrize(
    ("field", "given", "message"),
    [
        ("data_type", "fp99", "data_type must be one of fp32, tf32, .*, got 'fp99'"),
        ("data_type", None, "data_type must be one of fp32, .*, got None"),
        ("name", None, "name must be a text, got None"),
        ("num_embeddings", 10.5, "num_embeddings must be a whole number, got 10.5"),
        ("num_embeddings", "10", "num_embeddings must be a whole number, got '10'"),
        ("num_embeddings", True, "num_embeddings must be a whole number, got True"),
        ("embedding_dim", float("inf"), "embedding_dim must be a whole number, got inf"),
        ("pooling_factor", "3", "pooling_factor must be a number, got '3'"),
        (
            "pooling_factor",
            1e-320,
            "pooling_factor must be 0, or at least 1e-100, got 9.99989e-321",
        ),
        ("weighted", 1, "weighted must be true or false, got 1"),
        ("sharding_types", "row_wise", "sharding_types must be a tuple or a list, got 'row_wise'"),
        ("sharding_types", ("any",), r"sharding_types\[0\] must be one of .*, got 'any'"),
        ("ranks", (0, 0.5), r"ranks\[1\] must be a whole number, got 0.5"),
        ("inputs", 1.05, "inputs must be Zipf or ReuseHistogram or UniqueFraction, got 1.05"),
    ],
)
def test_other_values_are_refused(field: str, given: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        table(**{field: given})


def test_records_are_looked_at_too() -> None:
    anything: Any = None
    with pytest.raises(ValueError, match="hardware must be HardwareProfile, got None"):
        Topology(hardware=anything, world_size=2, local_world_size=2)
    with pytest.raises(ValueError, match=r"tables\[0\] must be EmbeddingTable, got None"):
        Workload(tables=(anything,))
    with pytest.raises(ValueError, match=r"top_mlp\[1\] must be a whole number, got 0.5"):
        DenseModel(top_mlp=(1, 0.5))  # type: ignore[arg-type]


def test_long_values_are_shown_in_short() -> None:
    wrong: Any = table()
    with pytest.raises(ValueError, match="tables must be a tuple or a list") as raised:
        Workload(tables=wrong)
    assert len(str(raised.value)) < 100


def test_no_records_are_made_anew_where_nothing_changes() -> None:
    tables = (table(),)
    assert Workload(tables=tables).tables is tables
