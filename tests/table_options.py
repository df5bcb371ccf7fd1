"""The options of one table, for tests."""

from dataclasses import replace

from costmodel.domain.hardware import Topology
from costmodel.domain.workload import EmbeddingTable, Workload
from sharders.problem.options import TableOption, options_by_name


def table_options(
    workload: Workload, topology: Topology, table: EmbeddingTable
) -> tuple[TableOption, ...]:
    """Return every option of a table, which may be none of the workload's."""
    return options_by_name(replace(workload, tables=(table,)), topology)[table.name]
