"""Execution traces without what no reader needs, small enough to keep."""

from collections.abc import Mapping
from typing import Any

from planner.traces.predict.calls import FAMILY_OF, descends
from planner.traces.predict.operator_trace import contiguous

_TENSOR = 6
"""Fields of a tensor: its number, storage, offset, elements, bytes of one, device."""


def shortened(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trace without calls inside operators that have a model, which readers skip.

    Nodes and storages are numbered from 1, and strides of contiguous tensors left out.
    """
    storages: dict[int, int] = {}
    numbers: dict[int, int] = {}
    hidden: set[int] = set()
    nodes = []
    for node in sorted(document["nodes"], key=lambda node: int(node["id"])):
        if node["ctrl_deps"] in hidden:
            hidden.add(node["id"])
            continue
        if _has_model(node["name"]):
            hidden.add(node["id"])
        numbers[node["id"]] = len(numbers) + 1
        nodes.append({
            "id": numbers[node["id"]],
            "name": node["name"],
            "ctrl_deps": numbers.get(node["ctrl_deps"], 1),
            "inputs": _side(node["inputs"], storages),
            "outputs": _side(node["outputs"], storages),
        })
    return {"schema": document["schema"], "pid": document["pid"], "nodes": nodes}


def _has_model(name: str) -> bool:
    known = name in FAMILY_OF or name.removesuffix("_") in FAMILY_OF
    return known and not descends(name)


def _side(side: Mapping[str, Any], storages: dict[int, int]) -> dict[str, Any]:
    if not side["values"]:
        return {}
    strides = [
        None if _is_contiguous(shape, own) else own
        for shape, own in zip(side["shapes"], side["strides"], strict=True)
    ]
    return {
        "values": _renumbered(side["values"], storages),
        "shapes": side["shapes"],
        "types": side["types"],
        "strides": strides,
    }


def _is_contiguous(shape: Any, strides: Any) -> bool:  # noqa: ANN401 - from a file
    whole = isinstance(strides, list) and all(isinstance(each, int) for each in strides)
    return whole and list(contiguous(shape)) == strides


def _renumbered(value: Any, storages: dict[int, int]) -> Any:  # noqa: ANN401 - from a file
    if not isinstance(value, list):
        return value
    if len(value) == _TENSOR and isinstance(value[1], int) and isinstance(value[5], str):
        return [0, storages.setdefault(value[1], len(storages) + 1), 0, *value[3:]]
    return [_renumbered(each, storages) for each in value]
