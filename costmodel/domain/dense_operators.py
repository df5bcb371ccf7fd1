"""The operators of a workload's dense part, at the batch of a rank."""

from collections.abc import Sequence
from functools import lru_cache

from costmodel.base.units import Bytes
from costmodel.domain.hardware import Gpu
from costmodel.domain.lengths import expected_maximum
from costmodel.domain.workload import EmbeddingTable, Pooling, Workload
from costmodel.operators.held_bytes import ActivationBytes, held_bytes
from costmodel.operators.on_cuda import on_cuda
from costmodel.operators.operator_list import BatchSize, OperatorList, SequenceSize, Size


def rank_batch(workload: Workload) -> BatchSize:
    """Return the batch of a rank: samples, and the sequences of each of its operators' groups.

    Those of a group are its features' in tables that are not pooled, or of all such tables if none
    has one of them. The longest is ``longest_bag`` where a table has it. Elsewhere lengths are
    taken to be normal, the longest of the batch's e(samples) standard deviations above the mean
    (``expected_maximum``).
    """
    listed, samples = workload.dense.operators, workload.local_batch_size
    unpooled = [each for each in workload.tables if each.pooling is Pooling.NONE]
    found = []
    for group in listed.groups if listed else ():
        read = [(each, len(set(each.features) & set(group))) for each in unpooled]
        if not any(number for _, number in read):
            read = [(each, each.num_features) for each in unpooled]
        found.append(_sequences(samples, [each for each in read if each[1]]))
    return BatchSize(samples, tuple(found))


def _sequences(samples: int, read: Sequence[tuple[EmbeddingTable, int]]) -> SequenceSize:
    """Return the sequences of some features of tables, given as a table and their number."""
    longest, ids = 0.0, 0.0
    for table, number in read:
        mean = table.pooling_factor / table.num_features
        spread = table.pooling_std / table.num_features  # as where all have the same lengths
        above = expected_maximum(samples) * spread if spread else 0.0
        longest = max(longest, table.longest_bag or mean + above)
        ids += samples * mean * number
    return SequenceSize(round(longest), round(ids))


@lru_cache(maxsize=16)
def rank_operators(workload: Workload) -> OperatorList[int]:
    """Return a workload's operators with the sizes that they have at a rank's batch.

    Raises
    ------
    ValueError
        Its dense part is given as layers.

    """
    return _operators(workload).at(rank_batch(workload))


def machine_operators(operators: OperatorList[int], gpu: Gpu) -> OperatorList[int]:
    """Return the operators that a list has on a GPU, or on a CPU's core."""
    return operators if gpu.is_core else on_cuda(operators)


@lru_cache(maxsize=16)
def operators_held_bytes(workload: Workload) -> ActivationBytes:
    """Return the bytes that the operators' activations hold on a GPU."""
    return held_bytes(on_cuda(rank_operators(workload)))


@lru_cache(maxsize=16)
def operators_input_bytes(workload: Workload) -> Bytes:
    """Return the bytes of a batch's numbers that operators read: dense features, labels.

    They are what is in memory before the step, is no embedding, and grows with the batch.
    """
    listed = _operators(workload)
    embeddings = {each.tensor.storage for each in listed.embeddings}
    found: dict[int, Bytes] = {}
    for given, sized in zip(listed.operators, rank_operators(workload).operators, strict=True):
        for tensor, at_batch in zip(given.inputs, sized.inputs, strict=True):
            outside = tensor.storage < 0 and tensor.storage not in embeddings
            if outside and any(any(size.coefficients[1:]) for size in tensor.sizes):
                found[tensor.storage] = max(found.get(tensor.storage, 0.0), at_batch.num_bytes)
    return sum(found.values())


def _operators(workload: Workload) -> OperatorList[Size]:
    if workload.dense.operators is None:
        raise ValueError("the dense part is given as layers")
    return workload.dense.operators
