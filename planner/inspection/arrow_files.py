"""Files that pyarrow reads: their schemas, sizes and batches, within limits."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from planner.inspection.sources import LogSource

BLOCK_BYTES = 2**22
"""Bytes of a text that are read at once; a line may be as long."""
_LARGEST_GROUP = 2**28
"""Values of lists in a row group of Parquet: one row may have them all, 2 GiB of ids."""


@contextmanager
def open_feather(source: LogSource) -> Iterator[Any]:
    """Open a Feather file for reading batches of rows."""
    import pyarrow as pa

    with pa.OSFile(str(source.path)) as file, pa.ipc.open_file(file) as reader:
        yield reader


def feather_batches(sources: Sequence[LogSource], names: Sequence[str]) -> Iterator[Any]:
    """Yield the batches of rows in Feather files."""
    for source in sources:
        with open_feather(source) as reader:
            for place in range(reader.num_record_batches):
                yield valid_batch(reader, place).select(names)


def valid_batch(reader: Any, place: int) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return a batch of rows of a Feather file; an error of pyarrow if it is damaged.

    Nothing may be asked of it before: even its size reads offsets, which may lead anywhere.
    """
    batch = reader.get_batch(place)
    batch.validate(full=True)
    return batch


def json_format(schema: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return how lines of JSON are read as a schema; fields that it lacks are left out."""
    from pyarrow import dataset
    from pyarrow import json as arrow_json

    return dataset.JsonFileFormat(
        parse_options=arrow_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore"
        ),
        read_options=arrow_json.ReadOptions(block_size=BLOCK_BYTES),
    )


def common_schema(paths: Sequence[str], format_: str) -> Any:  # noqa: ANN401 - as above
    """Return the columns of files, of types that hold those of all."""
    import pyarrow as pa
    from pyarrow import dataset

    schemas = [dataset.dataset(path, format=format_).schema.remove_metadata() for path in paths]
    return pa.unify_schemas(schemas, promote_options="permissive")


def row_values(found: Any) -> float:  # noqa: ANN401 - as above
    """Return the values in a row, on average of that row group of Parquet that has most.

    Without lists they are the columns.
    """
    # lists of no elements cannot be read, and are refused as a column
    sized = (each for each in found.schema if getattr(each.type, "list_size", 1))
    nested = [each.name for each in sized if each.type.num_fields]
    most = float(max(1, len(found.schema)))
    for fragment in found.get_fragments() if nested else ():
        for part in fragment.split_by_row_group():
            # of damaged metadata Python's objects end the process; what reads a row raises an error
            part.head(1, columns=nested, batch_size=1, batch_readahead=0, use_threads=False)
        metadata = fragment.metadata
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            most = max(most, sum(_values(group)) / max(group.num_rows, 1))
    return most


def _values(group: Any) -> list[int]:  # noqa: ANN401 - as above
    """Return how many values every column of a row group has, or refuse too many."""
    values = [group.column(at).num_values for at in range(group.num_columns)]
    if max(values, default=0) > max(_LARGEST_GROUP, group.num_rows):
        raise ValueError(
            f"a row group has {max(values):,} values of one column in lists; up to "
            f"{_LARGEST_GROUP:,} can be: write smaller ones (`row_group_size`)"
        )
    return values
