"""Collectives in a list of operators, as tensor parallelism has them.

References
----------
torch 2.13, torch/csrc/distributed/c10d/Ops.cpp, Functional.cpp: names, and the order of inputs.

"""

from typing import NamedTuple

from costmodel.base.units import Bytes
from costmodel.domain.hardware import CollectiveOp, Estimate, HardwareProfile
from costmodel.kernels.collectives import RankGroup, collective_estimate
from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import DenseOperator

COLLECTIVE_OPS = 5.0
"""Operators' worth of host time of a collective, in the 8 x V100 TorchRec DLRM trace:
``all_to_all_single`` with its split sizes 96-117 us forward, 130 us backward, ``allreduce_``
89 us."""
_KINDS = {
    "allreduce": CollectiveOp.ALL_REDUCE,
    "reducescatter": CollectiveOp.REDUCE_SCATTER,
    "allgather": CollectiveOp.ALL_GATHER,
}
"""By the beginning of an operator's name, without its library and underscores."""


class ListedCollective(NamedTuple):
    """What a collective of a list sends, and among how many ranks."""

    op: CollectiveOp
    num_bytes: Bytes
    """As nccl-tests count: what a rank sums, or all slices together."""
    num_ranks: int

    def estimate(self, ranks_per_node: int, hardware: HardwareProfile) -> Estimate:
        """Predict it among ranks that fill one node after the other.

        Raises
        ------
        ValueError
            They do not fill their nodes evenly.

        """
        group = RankGroup(num_ranks=self.num_ranks, ranks_per_node=ranks_per_node)
        return collective_estimate(self.op, self.num_bytes, group, hardware)


def collective_of(operator: DenseOperator[int]) -> ListedCollective | None:
    """Return the collective that an operator is; None: it is none.

    Slices are as large as the smallest tensor: operators in place are given what they write to.
    """
    if family_of(operator.name) is not OperatorFamily.COLLECTIVE:
        return None
    name = operator.name.rpartition("::")[2].replace("_", "")
    op = next(kind for part, kind in _KINDS.items() if name.startswith(part))
    given = [each.num_bytes for each in operator.inputs]
    if op is CollectiveOp.ALL_REDUCE:
        return ListedCollective(op, sum(given), operator.ranks)
    slice_bytes = min((*given, *(each.num_bytes for each in operator.outputs)), default=0.0)
    return ListedCollective(op, slice_bytes * operator.ranks, operator.ranks)
