"""The list that an execution trace of a step gives: of hand-made ones, and of real ones."""

import json
from pathlib import Path

import pytest
from execution_trace_files import FUNCTION, Argument, EtMaker, floats, sharded_step

from costmodel.base.errors import InputError
from costmodel.base.limits import MOST_DIMENSIONS
from costmodel.domain.hardware import CollectiveOp
from costmodel.kernels.listed_collectives import collective_of
from costmodel.operators.operator_list import BatchSize, OperatorList, Size
from planner.files.dense import parse_operators, save_operators
from planner.traces.execution.dense_list import traced_operators


def listed(folder: Path, *makers: EtMaker, samples: int | None = None) -> OperatorList[Size]:
    for rank, maker in enumerate(makers):
        text = json.dumps(maker.document())
        (folder / f"rank{rank}.json").write_text(text, encoding="utf-8")
    return traced_operators(folder, samples)


def sizes(found: OperatorList[Size], place: int) -> list[tuple[tuple[float, float], ...]]:
    """Constant and samples of every size of an operator's tensors."""
    operator = found.operators[place]
    return [
        tuple((size.constant, size.samples) for size in each.sizes)
        for each in (*operator.inputs, *operator.outputs)
    ]


def test_a_step_of_sharded_tables(tmp_path: Path) -> None:
    found = listed(tmp_path, sharded_step(), sharded_step())
    assert [each.name for each in found.operators] == ["aten::mm"] * 3
    assert (found.lookup_place, found.loss_place, found.exchange_place) == (0, 1, 2)
    assert [each.embeddings for each in found.operators] == [(), (0,), ()]
    assert [each.parameters for each in found.operators] == [(), (), (0,)]
    assert [each.num_elements for each in found.parameters] == [32 * 8]
    assert any("rank 0 of 2" in each for each in found.assumed)
    assert any("its optimizer is Adam" in each for each in found.assumed)


def test_the_batch_is_the_first_size_of_what_the_model_is_given(tmp_path: Path) -> None:
    found = listed(tmp_path, sharded_step())
    assert found.recorded == BatchSize(2)
    # embeddings (2, 32) by a weight (32, 8): 2 is the batch, though it divides the others
    assert sizes(found, 0) == [((0, 1), (32, 0)), ((32, 0), (8, 0)), ((0, 1), (8, 0))]
    # the weight's gradient adds up over the batch, and is as large at any
    assert sizes(found, 2) == [((32, 0), (0, 1)), ((0, 1), (8, 0)), ((32, 0), (8, 0))]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has 7 rows, or a multiple of them") as caught:
        listed(tmp_path, sharded_step(), samples=7)
    assert "`--batch-size`" in str(caught.value.problems[0].hint)
    maker = EtMaker()
    step = maker.add("Optimizer.step#SGD.step")
    weight = floats(4, storage=1)
    maker.add("aten::mul_", [weight], [weight], parent=step)
    with pytest.raises(InputError, match="no dense part is in it"):
        listed(tmp_path, maker)


def test_storages_that_are_freed_and_given_away_are_memory_of_their_own(tmp_path: Path) -> None:
    maker = EtMaker()
    maker.add("aten::relu", [floats(6, 5, storage=1)], [floats(6, 5, storage=2)])
    maker.add("aten::sum", [floats(6, 5, storage=2)], [floats(6, storage=3)])
    maker.add("aten::relu", [floats(6, storage=3)], [floats(6, storage=2)])
    given, *made = [
        each.storage
        for operator in listed(tmp_path, maker).operators
        for each in (*operator.inputs[:1], *operator.outputs)
    ]
    assert given < 0
    assert len(set(made)) == 3
    assert made[0] == made[1] != made[-1]


def test_products_without_their_tensors_are_left_out_and_said(tmp_path: Path) -> None:
    maker = EtMaker()
    maker.add("aten::relu", [floats(6, 5, storage=1)], [floats(6, 5, storage=2)])
    maker.add("aten::mm", [floats(6, 5, storage=2)], [floats(6, 8, storage=3)])
    found = listed(tmp_path, maker)
    assert [each.name for each in found.operators] == ["aten::relu"]
    assert "1 call of aten::mm left out" in found.unexplained[0]


def test_what_a_list_cannot_hold_is_left_out_too(tmp_path: Path) -> None:
    maker = EtMaker()
    deep = [1] * (MOST_DIMENSIONS + 1)
    maker.add("aten::relu", [floats(*deep, storage=1)], [floats(*deep, storage=2)])
    with pytest.raises(InputError, match="no dense part is in it"):
        listed(tmp_path, maker)
    maker.add("aten::relu", [floats(6, 5, storage=1)], [floats(6, 5, storage=2)])
    maker.add("mine::" + "x" * 2000, [floats(6, 5, storage=1)], [floats(6, 5, storage=3)])
    found = listed(tmp_path, maker)
    assert [each.name for each in found.operators] == ["aten::relu"]
    assert len(found.unexplained) == 2
    save_operators(found, tmp_path / "dense.json")
    text = (tmp_path / "dense.json").read_text(encoding="utf-8")
    assert parse_operators(text, "dense.json") == found


def test_it_is_a_file_that_workloads_read(tmp_path: Path) -> None:
    found = listed(tmp_path, sharded_step())
    save_operators(found, tmp_path / "dense.json")
    text = (tmp_path / "dense.json").read_text(encoding="utf-8")
    assert parse_operators(text, "dense.json") == found


def tensor_parallel_step(*recorded: Argument) -> EtMaker:
    """A layer whose output is summed over ranks, and its gradients, which are too.

    Storages: 1 input, 2 weight, 3 output, 4 its gradient, 5 the input's, 6 the weight's.
    """
    maker = EtMaker()
    product = [floats(6, 5, storage=1), floats(5, 8, storage=2)]
    maker.add("aten::mm", product, [floats(6, 8, storage=3)])
    sent = maker.add("c10d::allreduce_", [floats(6, 8, storage=3)])
    if recorded:
        maker.add("record_param_comms", [floats(6, 8, storage=3), *recorded], parent=sent)
    outer = maker.add(FUNCTION + "MmBackward0")
    inner = maker.add("MmBackward0", [floats(6, 8, storage=4)], parent=outer)
    given = [floats(6, 8, storage=4), floats(8, 5, storage=2)]
    maker.add("aten::mm", given, [floats(6, 5, storage=5)], parent=inner)
    given = [floats(5, 6, storage=1), floats(6, 8, storage=4)]
    maker.add("aten::mm", given, [floats(5, 8, storage=6)], parent=inner)
    hook = maker.add(FUNCTION + "torch::autograd::AccumulateGrad")
    maker.add("torch::autograd::AccumulateGrad", [floats(5, 8, storage=6)], parent=hook)
    maker.add("c10d::allreduce_", [floats(5, 8, storage=6)], parent=hook)
    maker.add("c10d::allreduce_", [floats(5, 8, storage=6)])
    return maker


@pytest.mark.parametrize(
    ("recorded", "ranks"), [((), 2), ((("allreduce", [], "String", []), (4, [], "Int", [])), 4)]
)
def test_collectives_on_what_the_model_makes_are_listed(
    tmp_path: Path, recorded: tuple[Argument, ...], ranks: int
) -> None:
    """Those of gradients are the plan's, whoever calls them."""
    maker = tensor_parallel_step(*recorded)
    found = listed(tmp_path, maker, maker, samples=6)
    assert [(each.name, each.ranks) for each in found.operators] == [
        ("aten::mm", 1), ("c10d::allreduce_", ranks), ("aten::mm", 1), ("aten::mm", 1),
    ]  # fmt: skip
    assert any("are of all 2" in each for each in found.assumed) is not bool(recorded)
    (joined,) = filter(None, map(collective_of, found.at(BatchSize(60)).operators))
    assert joined == (CollectiveOp.ALL_REDUCE, 4 * 60 * 8, ranks)
