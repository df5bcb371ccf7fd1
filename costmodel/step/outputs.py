"""The exchange of the outputs of sharding groups between ranks."""

from dataclasses import dataclass

from costmodel.domain.codecs import wire_element_bytes, wire_type
from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.lengths import fullest_batch
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType, Workload
from costmodel.step.builder import StepBuilder
from costmodel.step.template import GroupFormulas, Linear


@dataclass(frozen=True, slots=True)
class OutputExchange:
    """Sizes of a group's outputs, and its last collective."""

    builder: StepBuilder
    workload: Workload

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the outputs."""
        return self.workload.output_type.num_bytes

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.builder.world_size // self.builder.local_world_size

    def size(self, group: GroupFormulas) -> Linear:
        """Bytes of a rank's output for the samples of all ranks."""
        samples = self.workload.local_batch_size * self.builder.world_size
        return samples * group.columns * self.element_bytes

    def local_size(self, group: GroupFormulas) -> Linear:
        """Return bytes of all of a group's outputs for the rank's own samples.

        Unpooled, they are as many as the ids of the rank that has most.
        """
        return self._mean_local_size(group) * (1.0 + self._excess(group))

    def all_to_all_size(self, group: GroupFormulas, codec: DataType | None) -> Linear:
        """Bytes of a group's outputs on the wire, as an all-to-all of all ranks counts them."""
        mean = self._mean_local_size(group)
        size = self.builder.all_to_all_size(
            self.size(group), mean * float(self.builder.world_size), self._excess(group)
        )
        return size * self.wire_ratio(codec)

    def _mean_local_size(self, group: GroupFormulas) -> Linear:
        return self.workload.local_batch_size * self.element_bytes * group.table_columns

    def _excess(self, group: GroupFormulas) -> float:
        """Return by what share the rank with most outputs for its own samples exceeds the mean."""
        if group.key.pooled:
            return 0.0
        return fullest_batch(self.workload, self.builder.world_size) - 1.0

    def is_exchanged(self, group: GroupFormulas) -> bool:
        """Return whether ranks exchange the group's outputs at all."""
        several = self.builder.world_size > 1
        return several and group.key.sharding_type is not ShardingType.DATA_PARALLEL

    def waits_at_the_end(self, group: GroupFormulas) -> bool:
        """Return whether forward waits for the outputs after all lookups, not among them."""
        return self.num_nodes > 1 or not group.key.sharding_type.within_node

    def last_op(self, group: GroupFormulas) -> CollectiveOp:
        """Return the last collective of the group's outputs.

        Rows that are not pooled need no sum: they go by all-to-all, whoever holds them.
        """
        one_node = group.key.sharding_type.within_node and self.num_nodes == 1
        summed = group.key.sharding_type is ShardingType.ROW_WISE and group.key.pooled
        return CollectiveOp.REDUCE_SCATTER if one_node or summed else CollectiveOp.ALL_TO_ALL

    def codec(self, op: CollectiveOp, *, backward: bool) -> DataType | None:
        """Return the type that a collective's elements are converted to; None: they are not."""
        summed = op in {CollectiveOp.REDUCE_SCATTER, CollectiveOp.ALL_GATHER}
        return wire_type(self.workload, summed=summed, backward=backward)

    def wire_ratio(self, codec: DataType | None) -> float:
        """Return bytes on the wire per byte of the outputs."""
        return 1.0 if codec is None else wire_element_bytes(codec) / self.element_bytes
