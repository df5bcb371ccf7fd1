from typing import Any

import pytest
from execution_trace_files import EtMaker, rank, tensor

from costmodel.base.errors import InputError
from planner.traces.execution.operator_trace import operator_traces, runs_on_cpu


def documents(*makers: EtMaker) -> list[tuple[str, dict[str, Any]]]:
    return [(f"rank{number}.json", maker.document()) for number, maker in enumerate(makers)]


def old_schema(maker: EtMaker) -> dict[str, Any]:
    """The same nodes as schema 1.0 has them: flat, without strides."""
    nodes = [
        {
            "id": node["id"], "name": node["name"], "parent": node["ctrl_deps"], "tid": 1,
            "inputs": node["inputs"]["values"], "input_shapes": node["inputs"]["shapes"],
            "input_types": node["inputs"]["types"], "outputs": node["outputs"]["values"],
            "output_shapes": node["outputs"]["shapes"], "output_types": node["outputs"]["types"],
        }
        for node in maker.nodes
    ]  # fmt: skip
    return {"schema": "1.0.1", "pid": 7, "nodes": nodes}


def test_reads_operators_with_shapes_in_order() -> None:
    (trace,) = operator_traces(documents(rank()), "job")
    assert [op.name for op in trace.ops][:2] == ["aten::mm", "aten::relu"]
    assert trace.ops[0].inputs[1].shape == (10, 10)
    assert trace.ops[0].inputs[1].num_bytes == 400
    assert trace.ops[0].inputs[1].storage == 2
    assert runs_on_cpu([trace])


def test_a_tensor_that_was_not_asked_for_is_on_no_device() -> None:
    maker = rank()
    maker.add("aten::convolution_backward", [tensor(4, 4)], [tensor(device=""), tensor(4)])
    assert runs_on_cpu(operator_traces(documents(maker), "job"))
    maker.add("aten::relu", [tensor(4, 4, device="cuda:0")], [tensor(4, 4, device="cuda:0")])
    assert not runs_on_cpu(operator_traces(documents(maker), "job"))


def test_both_schemas_say_the_same() -> None:
    (new,) = operator_traces(documents(rank()), "job")
    (old,) = operator_traces([("rank0.json", old_schema(rank()))], "job")
    assert old.ops == new.ops


def test_strides_are_kept() -> None:
    maker = EtMaker()
    maker.add("aten::t", [tensor(3, 4, strides=[1, 3])])
    (trace,) = operator_traces(documents(maker), "job")
    assert trace.ops[0].inputs[0].strides == (1, 3)


def test_tensors_of_lists_are_inputs() -> None:
    maker = EtMaker()
    values, shapes, kinds, strides = zip(tensor(2, 3), tensor(4, 3), strict=True)
    joined = (list(values), list(shapes), f"GenericList[{','.join(kinds)}]", list(strides))
    maker.add("aten::cat", [joined])
    (trace,) = operator_traces(documents(maker), "job")
    assert [t.shape for t in trace.ops[0].inputs] == [(2, 3), (4, 3)]


def test_cuts_at_the_steps_of_the_profiler() -> None:
    maker = EtMaker()
    for number in (4, 5):
        maker.add(f"ProfilerStep#{number}")
        maker.add("aten::relu", [tensor(100)])
    (trace,) = operator_traces(documents(maker), "job")
    assert [(number, len(ops)) for number, ops in trace.steps] == [(4, 1), (5, 1)]


def test_refuses_traces_of_some_ranks() -> None:
    found = [(f"rank{number}.json", rank().document()) for number in (0, 3)]
    with pytest.raises(InputError, match=r"2 of 4 ranks; missing: 1, 2"):
        operator_traces(found, "job")


def test_a_time_of_day_in_a_name_is_no_reason_to_count_to_it() -> None:
    names = ("job_1694128201545.json", "job_1694128201547.json")
    with pytest.raises(InputError, match=r"traces of 2 of 1694128201548 ranks; missing: 0, 1, 2"):
        operator_traces([(name, rank().document()) for name in names], "job")


@pytest.mark.parametrize(
    "pattern", ["rank{}_step100.json", "worker7-rank{}.1694128201545.json", "et_{}.json"]
)
def test_a_name_says_the_rank(pattern: str) -> None:
    found = [(pattern.format(number), rank().document()) for number in (1, 0)]
    traces = operator_traces(found, "job")
    assert [(trace.rank, trace.source) for trace in traces] == [
        (0, pattern.format(0)),
        (1, pattern.format(1)),
    ]


def test_refuses_a_rank_that_is_there_twice() -> None:
    found = [("a/rank0.json", rank().document()), ("b/rank0.json", rank().document())]
    with pytest.raises(InputError, match="rank 0 is there twice"):
        operator_traces(found, "job")


def test_refuses_what_has_no_operators() -> None:
    with pytest.raises(InputError, match="no operators with the shapes"):
        operator_traces(documents(EtMaker()), "job")
    with pytest.raises(InputError, match="no execution traces"):
        operator_traces([("kineto.json", {"traceEvents": []})], "job")
