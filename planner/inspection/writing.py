"""What was counted, as YAML: the tables of a new workload file, or those of one that there is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.base.errors import InputError, Problem
from costmodel.domain.workload import Workload
from costmodel.inputs.distribution import InputDistribution
from planner.files.disk import read_text, source_name
from planner.files.source import parse_yaml
from planner.files.workload_reading import parse_workload, workload_from_document
from planner.files.workload_text import dump_workload_data, inputs_data
from planner.inspection.inspect import Inspection
from planner.inspection.statistics import TableObservation

DIGITS = 5
"""Significant digits of shares and hits in files; the sample is no more precise."""


def fragment(
    inspection: Inspection, *, law: str = "histogram", embedding_dim: int | None = None
) -> str:
    """Return the tables as YAML; with an embedding dimension it is a whole workload file."""
    from planner.files.workload_schema import Head

    rows = [
        {
            "name": table.name,
            "num_embeddings": table.num_embeddings,
            **({"feature_names": [*table.feature_names]} if _has_features(table) else {}),
            **_reads(table, law),
        }
        for table in inspection.tables
    ]
    data: dict[str, Any] = {"tables": rows}
    remark = [f"# counted in {_one_line(inspection.source)}"]
    for source in dict.fromkeys(table.rows_from for table in inspection.tables):
        names = [table.name for table in inspection.tables if table.rows_from == source]
        remark.append(f"# rows of {_one_line(', '.join(names))}: {source}")
    if embedding_dim is None:
        remark.append("# a workload needs embedding_dim, too: here for all, or in every table")
    else:
        remark.append("# local_batch_size, samples per GPU, is assumed: put in your own")
        batch = Head().local_batch_size
        data = {"local_batch_size": batch, "defaults": {"embedding_dim": embedding_dim}, **data}
    text = dump_workload_data(data)
    _check_read(text if embedding_dim else f"{text}\ndefaults: {{embedding_dim: 4}}\n", inspection)
    return "\n".join([*remark, text])


def _has_features(table: TableObservation) -> bool:
    return table.feature_names != (table.name,)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _check_read(written: str, inspection: Inspection) -> None:
    """Check that commands that read workloads accept the counts.

    Raises
    ------
    InputError
        A model cannot have as many ids per sample, or as many tables.

    """
    try:
        parse_workload(written, inspection.source)
    except InputError as error:
        message = "what was counted is no workload: {}"
        problems = [Problem(message=message.format(each.message)) for each in error.problems]
        raise InputError(inspection.source, problems) from None


def load_patched(path: str | Path) -> tuple[dict[str, Any], Workload]:
    """Return a workload file as plain data, and as a workload."""
    document = parse_yaml(read_text(path), source_name(path))
    workload = workload_from_document(document)
    return document.data, workload


def patched(data: Mapping[str, Any], inspection: Inspection, *, law: str = "histogram") -> str:
    """Return a workload file's text with the counted lengths and distributions.

    Everything else stays as it was written, but for comments and layout.
    """
    seen = {table.name: table for table in inspection.tables}
    rows = []
    for row in data["tables"]:
        table = seen.get(row["name"])
        rows.append({**row, **({} if table is None else _reads(table, law))})
    spread = inspection.length_spread
    counted = {} if spread is None else {"length_spread": _rounded(spread)}
    text = dump_workload_data({**data, **counted, "tables": rows})
    _check_read(text, inspection)
    return text


def _reads(table: TableObservation, law: str) -> dict[str, Any]:
    """Return the fields of a workload file for how a batch reads a table."""
    return {
        "pooling_factor": _rounded(table.pooling_factor),
        **(
            {"pooling_std": _rounded(table.pooling_std), "longest_bag": table.longest_bag}
            if table.pooling_std
            else {}
        ),
        "inputs": _input_fields(table.inputs_as(law)),
    }


def _input_fields(inputs: InputDistribution) -> dict[str, Any]:
    """Return the distribution's fields with few digits."""
    return {
        key: [_rounded(part) for part in value] if isinstance(value, list) else _short(value)
        for key, value in inputs_data(inputs).items()
    }


def _short(value: object) -> object:
    return _rounded(value) if isinstance(value, float) else value


def _rounded(value: float) -> float:
    return round(value, 1) if value >= 10**DIGITS else float(f"{value:.{DIGITS}g}")
