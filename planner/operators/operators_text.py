"""A list of operators as text, and as JSON: FLOP and bytes at a batch, and what was assumed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.dense_operators import machine_operators
from costmodel.domain.hardware import HardwareProfile
from costmodel.domain.workload import DataType
from costmodel.kernels.operators import listed_estimate, pass_times
from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import BatchSize, DenseOperator, OperatorList, Pass, Size
from costmodel.operators.work import flop, moved, work_of
from planner.show.columns import COUNT, MEMORY, TIME, Column, Quantity, rows_data
from planner.show.format import count, duration, memory, rate
from planner.show.layout import rows_text, titled, wrapped


@dataclass(frozen=True, slots=True)
class OnMachine:
    """What operators are timed for."""

    hardware: HardwareProfile
    precision: DataType
    """Arithmetic of products of FP32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyWork:
    """What the operators of a kind do."""

    family: OperatorFamily
    forward: int
    """Operators."""
    backward: int
    flop: float
    moved: Bytes
    seconds: Seconds | None
    """What their kernels take; None: on no machine."""


def family_works(operators: OperatorList[int], machine: OnMachine | None) -> list[FamilyWork]:
    """Return what operators of each kind do, the most FLOP first, then the most bytes."""
    found = []
    for family in OperatorFamily:
        alike = [each for each in operators.operators if family_of(each.name) is family]
        forward = sum(each.direction is Pass.FORWARD for each in alike)
        work = FamilyWork(
            family=family,
            forward=forward,
            backward=len(alike) - forward,
            flop=sum(map(flop, alike)),
            moved=sum(sum(moved(each)) for each in alike),
            seconds=None if machine is None else sum(_seconds(each, machine) for each in alike),
        )
        found += [work] if alike else []
    return sorted(found, key=lambda each: (-each.flop, -each.moved))


FAMILIES: list[Column[FamilyWork]] = [
    Column("Operators", lambda row: row.family.value, key="family"),
    Column("Forward", lambda row: row.forward, COUNT, key="forward"),
    Column("Backward", lambda row: row.backward, COUNT, key="backward"),
    Column("FLOP", lambda row: row.flop or None, Quantity(rate), key="flop"),
    Column("Read and written", lambda row: row.moved, MEMORY, key="moved_bytes"),
    Column("Time", lambda row: row.seconds, TIME, key="time_s"),
]


def _sized(
    operators: OperatorList[Size], batch: BatchSize, machine: OnMachine | None
) -> OperatorList[int]:
    """Return the list at a batch, as it runs on the machine, if one is given."""
    sized = operators.at(batch)
    return sized if machine is None else machine_operators(sized, machine.hardware.gpu)


def _seconds(operator: DenseOperator[int], machine: OnMachine) -> Seconds:
    return listed_estimate(operator, machine.precision, machine.hardware).seconds


def operators_text(
    operators: OperatorList[Size], batch: BatchSize, machine: OnMachine | None, width: int
) -> Iterator[Text]:
    """Yield the lines of a list at a batch."""
    sized = _sized(operators, batch, machine)
    work = work_of(sized)
    parameters = f"{operators.num_parameters:,} parameters outside the tables"
    yield Text(f"{operators.name}: {count(len(sized.operators), 'operator')}, {parameters}")
    yield Text()
    for name, text in (
        ("batch", _batch_text(batch, operators.groups)),
        ("forward", _flop_text(work.forward_flop)),
        ("backward", _flop_text(work.backward_flop)),
        ("activations", f"{memory(work.kept)} kept between the two"),
    ):
        yield Text(f"  {name:<14}{text}")
    if machine is not None:
        for direction, times in pass_times(sized, machine.precision, machine.hardware).items():
            takes = f"{duration(times.kernels)} of kernels, {duration(times.host)} to issue them"
            yield Text(f"  {direction.value + ' time':<14}{takes} ({machine.hardware.name})")
    columns = FAMILIES if machine else FAMILIES[:-1]
    table = rows_text(columns, family_works(sized, machine), width=width)
    yield from titled("Operators by kind", table)
    if operators.unexplained:
        said = wrapped("; ".join(operators.unexplained), width, indent=2)
        yield from titled("Sizes that do not follow from the batch's", said)
    yield from titled(
        "Assumed", (line for each in operators.assumed for line in wrapped(each, width, indent=2))
    )


def operators_summary(
    operators: OperatorList[Size], batch: BatchSize, machine: OnMachine | None = None
) -> dict[str, Any]:
    """Return a list's work at a batch as the command's JSON has it."""
    sized = _sized(operators, batch, machine)
    work = work_of(sized)
    return {
        "name": operators.name,
        "num_operators": len(sized.operators),
        "num_parameters": operators.num_parameters,
        "batch": {
            "samples": batch.samples,
            "sequences": [
                {"features": list(group), **each._asdict()}
                for group, each in zip(operators.groups, batch.sequences, strict=True)
            ],
        },
        "forward_flop": work.forward_flop,
        "backward_flop": work.backward_flop,
        "moved_bytes": work.moved,
        "activation_bytes": work.kept,
        "families": rows_data(FAMILIES, family_works(sized, machine)),
        "times_s": None
        if machine is None
        else {
            direction.value: times._asdict()
            for direction, times in pass_times(sized, machine.precision, machine.hardware).items()
        },
        "assumed": list(operators.assumed),
        "unexplained": list(operators.unexplained),
    }


def _flop_text(number: float) -> str:
    return f"{rate(number)}FLOP" if number else "no products"


def _batch_text(batch: BatchSize, groups: Sequence[Sequence[str]]) -> str:
    """Return the samples, and how long the sequences of each group of features are."""
    texts = [count(batch.samples, "sample")]
    for group, each in zip(groups, batch.sequences, strict=True):
        of = f"of {', '.join(group)} " if len(groups) > 1 else ""
        texts.append(f"sequences {of}of up to {count(each.longest, 'id')}, {each.ids:,} in all")
    return "; ".join(texts)
