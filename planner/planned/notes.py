"""Warnings: what the plan's machine cannot train, and what its profile lacks."""

from collections.abc import Iterator

from costmodel.base.units import Seconds
from costmodel.domain.codecs import wire_type
from costmodel.domain.dense_operators import rank_batch
from costmodel.domain.hardware import Device, Gpu, Topology
from costmodel.domain.workload import DataType, Optimizer, Pooling, Workload
from costmodel.operators.operator_list import OperatorList, Size
from costmodel.step.operator_kernels import unknown_shares
from planner.planned.verdict import SAME_STEP
from planner.show.format import count, duration, percent

_NOT_EVERYWHERE = {
    DataType.BF16: "GPUs before Ampere",
    DataType.FP8: "GPUs before Hopper and Ada",
}
"""Data types that some GPUs cannot multiply, with a name of these GPUs."""
_MOST_NAMED = 5
"""Operators that a note names."""
_LOOKUPS = {
    Device.CUDA: (
        (DataType.FP32, DataType.FP16, DataType.FP8),
        (DataType.FP32, DataType.FP16, DataType.BF16),
        tuple(Optimizer),
    ),
    Device.CPU: (
        (DataType.FP32, DataType.FP16),
        (DataType.FP32, DataType.FP16),
        (Optimizer.SGD, Optimizer.ADAGRAD, Optimizer.ROWWISE_ADAGRAD),
    ),
}
"""Data types of weights and of outputs, and the optimizers, that FBGEMM's lookups support, by
device; FP8 is TorchRec's NFP8. For GPUs: fbgemm_gpu 1.8.0, dispatch_macros.h 14-127. For CPUs: what
could be made, looked up and updated with fbgemm-gpu-cpu 1.8.0."""


def untrained(workload: Workload, device: Device) -> Iterator[str]:
    """Yield a warning for each thing that is timed although training it fails."""
    tables = workload.tables[::-1]
    asked: tuple[dict[str, str], ...] = (
        {table.data_type: f"weights of `{table.name}`" for table in tables},
        {workload.output_type: "outputs of embeddings"},
        {workload.optimizer_of(table): f"optimizer of `{table.name}`" for table in tables},
    )
    machines = "CPUs" if device is Device.CPU else "GPUs"
    for wanted, known in zip(asked, _LOOKUPS[device], strict=True):
        for kind, what in wanted.items():
            if kind not in known:
                yield (
                    f"{what}: {kind} cannot be trained, FBGEMM's lookups on {machines} have "
                    f"{', '.join(known)}"
                )
    output = workload.output_type
    forward, backward = (
        wire_type(workload, summed=False, backward=backward) for backward in (False, True)
    )
    if output is not DataType.FP32 and backward and not forward:
        # beside a codec of gradients TorchRec makes one of FP32 for outputs, which decodes nothing
        # else (fbgemm_gpu 1.8.0, quantize_comm.py 129)
        yield (
            f"outputs of embeddings: {output} cannot be sent as it is where gradients are sent in "
            f"{backward}; quantize the forward communication, too"
        )


def notes_on_reading(workload: Workload) -> Iterator[str]:
    """Yield warnings of what was assumed where a model's dense part was read."""
    dense, listed = workload.dense, workload.dense.operators
    if listed is not None:
        said = [
            *listed.assumed,
            *_unexplained(listed),
            *_sequences(workload),
            *_one_batch(workload),
        ]
        if said:
            yield f"of the dense part's {count(len(listed.operators), 'operator')}: " + "; ".join(
                said
            )
    if dense.most_products:
        yield (
            f"the dense part was read from {dense.read_parameters:,} of "
            f"{count(dense.model_parameters, 'parameter')}: what it may take beside that widens "
            "the interval, and lengthens the expected step"
        )


def _unexplained(listed: OperatorList[Size]) -> Iterator[str]:
    if listed.unexplained:
        yield (
            f"{count(len(listed.unexplained), 'operator')} with sizes that follow from no batch's "
            "terms, as in the run that read them"
        )


def _one_batch(workload: Workload) -> Iterator[str]:
    """Yield that no size grows with the samples, if those planned for are not those read."""
    samples, listed = workload.local_batch_size, workload.dense.operators
    if listed is None or listed.recorded.samples == samples:
        return
    tensors = (each for op in listed.operators for each in (*op.inputs, *op.outputs))
    if not any(any(size.coefficients[1:]) for each in tensors for size in each.sizes):
        yield f"no size grows with the samples: with {samples:,} they are what they were when read"


def _sequences(workload: Workload) -> Iterator[str]:
    """Yield how long sequences are taken to be where tables do not say it."""
    unpooled = [each for each in workload.tables if each.pooling is Pooling.NONE]
    if unpooled and not any(each.longest_bag for each in unpooled):
        longest = [count(each.longest, "id") for each in rank_batch(workload).sequences]
        if longest:
            yield (
                f"the longest sequence of a batch has {' and '.join(longest)} (`longest_bag` of "
                "tables says it)"
            )


def notes_on(workload: Workload, topology: Topology) -> Iterator[str]:
    """Yield a warning for each thing that the machine's profile lacks or that cannot be trained.

    A GPU's profile lists the data types of its matrix products. A type that is not there is timed
    as another one; a type that is no faster than fp32 has no units of its own.
    """
    yield from untrained(workload, topology.hardware.device)
    yield from notes_on_reading(workload)
    yield from _unknown_operators(workload, topology)
    gpu, asked = topology.hardware.gpu, _uses(workload)
    for data_type, older in _NOT_EVERYWHERE.items():
        if topology.hardware.device is Device.CPU or _multiplies(gpu, data_type):
            continue
        if data_type in asked:
            yield (
                f"the profile of {gpu.name} has no speed of {data_type.value} units ({older} "
                f"have none): the {asked[data_type]} in {data_type.value} may be slower than "
                "predicted, or not run"
            )


def _unknown_operators(workload: Workload, topology: Topology) -> Iterator[str]:
    """Yield which operators of a dense part no model knows, and their share of its kernels."""
    shares = {} if workload.dense.operators is None else unknown_shares(workload, topology)
    if shares:
        names = sorted(shares, key=lambda each: -shares[each])
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        yield (
            f"operators that no model knows are timed by the bytes of their tensors, "
            f"{percent(sum(shares.values()))} of the dense part's kernels: "
            f"{', '.join(names[:_MOST_NAMED])}{more}"
        )


def note_on_change(before: Seconds | None, now: Seconds) -> Iterator[str]:
    """Yield a warning that a plan's step was timed with another profile or other models.

    ``before`` and ``now`` are the two steps; None: not known.
    """
    if before is not None and abs(now / before - 1.0) > SAME_STEP:
        yield (
            f"this plan was expected to take {duration(before)} when it was made, and is now "
            f"expected to take {duration(now)}: its hardware profile, its file or the models "
            "have changed"
        )


def note_on_nodes(topology: Topology) -> Iterator[str]:
    """Yield a warning if nodes of a plan from elsewhere have more GPUs than the machine's have."""
    hardware, local = topology.hardware, topology.local_world_size
    if local > hardware.gpus_per_node:
        yield (
            f"a node of this plan has {count(local, hardware.device.unit)}, and one of "
            f"{hardware.name} has {hardware.gpus_per_node}: it is timed as if they had the same "
            "links to each other"
        )


def _multiplies(gpu: Gpu, data_type: DataType) -> bool:
    """Return whether a GPU has units for the products of a data type."""
    known = gpu.gemm.get(data_type.value)
    plain = gpu.gemm.get(DataType.FP32.value)
    return known is not None and (plain is None or known.peak > plain.peak)


def _uses(workload: Workload) -> dict[DataType, str]:
    """Return the parts of a workload that need each data type, as text; dense layers come first."""
    names: dict[DataType, list[str]] = {}
    for table in workload.tables:
        names.setdefault(table.data_type, []).append(f"`{table.name}`")
    asked = {
        data_type: f"weights of {own[0] if len(own) == 1 else count(len(own), 'table')}"
        for data_type, own in names.items()
    }
    for data_type in (workload.comms_backward, workload.comms_forward):
        if data_type is not None:
            asked[data_type] = "collectives"
    asked[workload.output_type] = "outputs of embeddings"
    return {**asked, workload.dense.precision: "dense layers"}
