from typing import Any

from planner.traces.execution.communications import execution_traces


def node(number: int, sides: list[list[Any]], *, nested: bool) -> dict[str, Any]:
    """A node with its arguments and results; tensors are floats."""
    made: dict[str, Any] = {"name": "record_param_comms", "id": number}
    for side, values in zip(("input", "output"), sides, strict=True):
        shapes = [_shape(each) for each in values]
        types = [_type(each) for each in values]
        if nested:
            made[f"{side}s"] = {"values": values, "shapes": shapes, "types": types}
        else:
            made |= {f"{side}s": values, f"{side}_shapes": shapes, f"{side}_types": types}
    return made


def _shape(value: Any) -> list[Any]:  # noqa: ANN401 - as a trace has it
    if not isinstance(value, list) or not value:
        return []
    return [_shape(each) for each in value] if isinstance(value[0], list) else [value[3]]


def _type(value: Any) -> str:  # noqa: ANN401 - as a trace has it
    if not isinstance(value, list) or not value:
        return "Int"
    if isinstance(value[0], list):
        return f"GenericList[{','.join(map(_type, value))}]"
    return "Tensor(float)"


def test_starts_and_waits_in_program_order() -> None:
    sent, received = [1, 2, 0, 100, 4, "cuda:0"], [3, 4, 0, 50, 8, "cuda:0"]
    for nested in (False, True):
        nodes = [
            node(7, [[12, 99, 0, "wait", [], []], []], nested=nested),
            node(5, [[sent, 12, 99, 0, "all_to_allv", [], []], [received]], nested=nested),
            node(6, [[[sent, sent], 13, 99, 0, "allreduce"], [[sent, sent]]], nested=nested),
            {"name": "aten::add", "id": 1},
        ]
        (trace,) = execution_traces([("dlrm_eg_3.json", {"nodes": nodes, "pid": 42})])
        assert (trace.pid, trace.number) == (42, 3)
        found = [(c.operation, c.sequence, c.num_bytes) for c in trace.communications]
        # 100 floats sent, 50 longs received; two tensors of 400 bytes
        assert found == [("all_to_allv", 12, 400.0), ("allreduce", 13, 800.0), ("wait", 12, 0.0)]


def test_profiler_traces_are_not_execution_traces() -> None:
    assert execution_traces([("a.json", {"traceEvents": []}), ("b.json", {"nodes": 3})]) == []
