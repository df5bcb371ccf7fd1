"""Writing workloads as plain data and as YAML, in the form of a workload file."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.domain.workload import LAYER_FIELDS, DenseModel, EmbeddingTable, Workload
from costmodel.inputs.distribution import InputDistribution, UniqueFraction, Zipf
from planner.files.source import yaml_class

_HEAD = (
    "name", "local_batch_size", "pipeline", "optimizer", "output_type", "index_bytes"
)  # fmt: skip
"""Fields of a workload that are always written, before all others."""
_ALWAYS = ("num_dense_features", "bottom_mlp", "interaction", "top_mlp", "precision", "optimizer")
"""Fields of the dense model that are written even if they are the defaults."""
_OPTIONAL = ("mean_hits", "range_lookups", "range_rows")
"""Optional fields of a counted batch besides its reuse histogram."""


def workload_data(workload: Workload) -> dict[str, Any]:
    """Return the workload as plain data, in the form of a workload file."""
    rows = [_table_data(table) for table in workload.tables]
    common = _shared(rows)
    data: dict[str, Any] = {name: _plain(getattr(workload, name)) for name in _HEAD}
    if workload.gradient_accumulation_steps > 1:
        data["gradient_accumulation_steps"] = workload.gradient_accumulation_steps
    for name in ("length_spread", "restore_site"):
        if getattr(workload, name) is not None:
            data[name] = getattr(workload, name)
    comms = {"forward": workload.comms_forward, "backward": workload.comms_backward}
    given = {name: _plain(data_type) for name, data_type in comms.items() if data_type}
    if given:
        data["comms"] = given
    data["dense"] = _dense_data(workload.dense)
    if common:
        data["defaults"] = common
    data["tables"] = [
        {key: value for key, value in row.items() if key not in common} for row in rows
    ]
    return data


def _dense_data(dense: DenseModel) -> dict[str, Any]:
    from planner.files.dense import operators_data

    data = {
        field.name: _plain(getattr(dense, field.name))
        for field in dataclasses.fields(DenseModel)
        if field.name in _ALWAYS or getattr(dense, field.name) != field.default
    }
    if dense.operators is None:
        return data
    told = {name: value for name, value in data.items() if name not in LAYER_FIELDS}
    return {**told, "operators": operators_data(dense.operators)}


def dump_workload(workload: Workload) -> str:
    """Return the workload as YAML, one table per line."""
    return dump_workload_data(workload_data(workload))


def dump_workload_data(data: Mapping[str, Any]) -> str:
    """Return plain data in the form of a workload file as YAML, one table per line."""
    rest = dict(data)
    tables = rest.pop("tables")
    lines = [f"{key}: {_flow(value)}" for key, value in rest.items()]
    lines += ["tables:", *(f"  - {_flow(table)}" for table in tables)]
    return "\n".join(lines) + "\n"


def _table_data(table: EmbeddingTable) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for field in dataclasses.fields(EmbeddingTable):
        value = getattr(table, field.name)
        if field.name == "inputs":
            if value != Zipf():
                data["inputs"] = inputs_data(value)
        elif value != field.default:
            data[field.name] = _plain(value)
    return data


def inputs_data(inputs: InputDistribution) -> dict[str, Any]:
    """Return an input distribution as the `inputs` of a table in a workload file."""
    if isinstance(inputs, Zipf):
        hot = {"hot_rows_first": True} if inputs.hot_rows_first else {}
        return {"zipf": inputs.exponent, **hot}
    if isinstance(inputs, UniqueFraction):
        return {"unique_fraction": inputs.fraction, "num_lookups": inputs.num_lookups}
    optional = {name: list(getattr(inputs, name)) for name in _OPTIONAL if getattr(inputs, name)}
    return {
        "reuse_histogram": list(inputs.row_shares),
        "num_lookups": inputs.num_lookups,
        **optional,
    }


def _shared(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields on which all tables agree, to be written as ``defaults``."""
    own = {"name", "feature_names", "ranks"}
    if len(rows) < 2:
        return {}
    return {
        key: value
        for key, value in rows[0].items()
        if key not in own and all(key in row and row[key] == value for row in rows)
    }


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, str) else value


def _flow(value: object) -> str:
    """Return a value as YAML in one line."""
    import yaml

    text: str = yaml.dump(
        value,
        Dumper=yaml_class("SafeDumper"),
        default_flow_style=True,
        sort_keys=False,
        allow_unicode=True,
        width=2**30,
    )
    return text.removesuffix("\n").removesuffix("\n...")
