"""``planner calibrate --from-trace``: learning from profiled training steps."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costmodel.base.errors import InputError, Problem
from planner.show.columns import COUNT, Column, Quantity, plain, rows_data
from planner.show.format import duration, printable
from planner.show.output import Output

if TYPE_CHECKING:
    from costmodel.domain.traced import OperatorOverheads
    from planner.calibration.learning import Learned
    from planner.traces.replay.importing import ImportedRun

_MOST_ROWS = 12
_NS = 1e-9
"""Seconds below which a time is rounding of the profiler's clock."""


def learn_from_trace(
    traces: str, hardware: str, path: str | None, name: str | None, output: Output
) -> None:
    """Learn host overheads and collectives from traces, report them, and write a profile."""
    from costmodel.domain.hardware import Device
    from planner.calibration.base_profile import base_profile
    from planner.calibration.learning import learn, learned_profile
    from planner.files.disk import check_writable, write_text
    from planner.files.profiles import dump_profile

    base = base_profile(hardware, Device.CUDA)
    if path is not None:
        check_writable(path)
        name = name or (base.name if path == "-" else Path(path).stem)
    learned = learn(_whole_run(traces), traces)
    if output.json:
        output.data(_data(learned))
    elif path != "-":
        output.lines(lambda width: _lines(learned, width))
    if path is not None:
        profile = replace(learned_profile(learned, base), name=name or base.name)
        write_text(path, dump_profile(profile))
        output.remark(f"Wrote {path}; use it with --hardware {path}")


def _whole_run(traces: str) -> "ImportedRun":
    """Return the run of all ranks' traces.

    Raises
    ------
    InputError
        They cannot be replayed, or some rank's is missing: its collectives contain waits.

    """
    from planner.traces.replay.importing import load_run
    from planner.traces.replay.job import EVERY_RANK

    run = load_run(traces)
    if not run.job.is_whole:
        absent = f"; missing: {run.job.absent_text}" if run.job.absent_text else ""
        message = f"traces of {run.job.text}{absent}"
        hint = "a collective's time is told from its wait only by the traces of all ranks"
        hint = f"{hint}; {EVERY_RANK}"
        raise InputError(traces, (Problem(message=message, hint=hint),))
    return run


def _lines(learned: "Learned", width: int) -> Any:  # noqa: ANN401 - an iterator of rich's text
    """Yield the report's lines: host, operators, kernels, collectives."""
    from rich.text import Text

    from planner.show.layout import rows_text

    yield Text("Host, with the profiler attached", style="bold")
    for name, seconds in learned.host.items():
        yield Text(f"  {name:<18} {duration(seconds)}")
    yield from rows_text(_operator_columns(), learned.operators[:_MOST_ROWS], width=width, gap=2)
    yield Text("Kernels, the longest in all first", style="bold")
    for kernel in learned.kernels[:_MOST_ROWS]:
        name = _short(kernel.name)[: width - 30]
        yield Text(f"  {duration(kernel.median):>9} × {kernel.count:<6,} {name}")
    known = [point for point in learned.collectives if point.num_bytes]
    yield Text("Collectives, from the latest start to the end", style="bold")
    for point in known[:_MOST_ROWS]:
        size = f"{point.num_bytes:,.0f} bytes"
        yield Text(f"  {point.op:<15} {size:>18}  {duration(point.seconds)}")
    if len(known) < len(learned.collectives):
        yield Text(f"  {len(learned.collectives) - len(known)} of unknown size")


def _operator_columns() -> "list[Column[OperatorOverheads]]":
    time = Quantity(lambda seconds: duration(seconds) if seconds >= _NS else "")
    return [
        Column("Operator", lambda row: row.name, _short, key="name"),
        Column("Count", lambda row: row.count, COUNT, key="count"),
        Column("T1", lambda row: row.before, time, key="t1_s"),
        Column("T2", lambda row: row.lead, time, key="t2_s"),
        Column("T3", lambda row: row.tail, time, key="t3_s"),
        Column("T4", lambda row: row.call, time, key="t4_s"),
        Column("T5", lambda row: row.between, time, key="t5_s"),
    ]


def _short(name: str) -> str:
    return printable(name.replace("autograd::engine::evaluate_function", "backward"))


def _data(learned: "Learned") -> dict[str, Any]:
    from costmodel.domain.traced import KernelTime
    from planner.calibration.learning import TracedCollective

    keys = {KernelTime: {"median": "median_s"}, TracedCollective: {"seconds": "time_s"}}
    return {
        "traces": learned.source,
        "host": {f"{name}_s": seconds for name, seconds in learned.host.items()},
        "operators": rows_data(_operator_columns(), learned.operators),
        "kernels": plain(learned.kernels, keys),
        "collectives": [
            {**plain(point, keys), "num_bytes": point.num_bytes or None}
            for point in learned.collectives
        ],
    }
