"""Making the CPU profile: micro-benchmarks, then steps of models smaller than any predicted."""

import platform
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.nlp import fit, kernels, timing
from bench.nlp.cpu_model import CpuProfile
from bench.nlp.models import Case, timed_steps, traced_step
from bench.nlp.ranks import WORLD_SIZE, run_ranks
from planner.traces.predict.operator_trace import operator_traces
from planner.traces.predict.walk import rank_work
from planner.traces.trace_files import read_documents


def _case(model: str, optimizer: str, **sizes: int) -> Case:
    return Case(model=model, optimizer=optimizer, **sizes)


TINY = tuple(
    _case(
        model, optimizer, hidden_size=32, num_layers=layers, num_heads=2, vocabulary=96,
        sequence_length=8, local_batch_size=1,
    )
    for model in ("bert", "gpt2", "xlnet")
    for layers in (1, 3)
    for optimizer in ("for-loop", "fused")
)  # fmt: skip
"""Steps that are nearly all host time."""
SMALL = tuple(
    _case(
        model, "for-loop", hidden_size=hidden, num_layers=2, num_heads=4, vocabulary=words,
        sequence_length=length, local_batch_size=batch,
    )
    for model in ("bert", "gpt2", "xlnet")
    for hidden, length, words, batch in ((64, 56, 512, 12), (160, 48, 2560, 4), (208, 24, 1024, 8))
)  # fmt: skip
"""Steps that are mostly kernels, with more and with less in products: narrower models, shorter
sequences and fewer words than any that is predicted."""
_STEPS = 40


def calibrated() -> CpuProfile:
    """Return this machine's profile."""
    measured = run_ranks(kernels.measured)
    operators = _typical(measured, "operators", ("seconds", "far_seconds"))
    profile = CpuProfile(
        name=f"{platform.machine()}-1-core",
        source=source(),
        near_bytes=float(timing.NEAR),
        far_bytes=float(timing.FAR),
        products=fit.products(_typical(measured, "products", ("seconds", "far_seconds"))),
        operators=fit.operators(operators, kernels.LONG),
        host=fit.NO_HOST,
        all_reduce=fit.all_reduce(
            _typical(measured, "reductions", ("wall_s", "work_s")), WORLD_SIZE
        ),
    )
    with tempfile.TemporaryDirectory() as folder:
        steps = _timed_steps(folder)
    host, in_step = fit.steps(profile, steps)
    profile = replace(profile, host=host, in_step=in_step)
    waiting = fit.waiting(profile, steps[-len(SMALL) :])
    return replace(profile, in_step=replace(in_step, waiting=waiting))


def _typical(
    measured: Sequence[Mapping[str, Any]], kind: str, keys: Sequence[str]
) -> list[dict[str, Any]]:
    """Return rows with the mean of the ranks' medians: what is predicted is a median, too."""
    columns = zip(*(rank[kind] for rank in measured), strict=True)
    return [{**rows[0], **{k: fmean(row[k] for row in rows) for k in keys}} for rows in columns]


def step_times(rank: int, folder: str) -> dict[str, dict[str, Any]]:
    """Trace and time models on one rank."""
    found = {}
    for case in (*TINY, *SMALL):
        traced_step(rank, case, folder)
        found[case.name] = timed_steps(rank, case, num_steps=_STEPS)
    return found


def _timed_steps(folder: str) -> list[fit.MeasuredStep]:
    times = run_ranks(step_times, folder)
    steps = []
    for case in (*TINY, *SMALL):
        path = Path(folder) / f"{case.name}-rank0.json"
        (trace,) = operator_traces(read_documents(path), str(path))
        mine = [rank[case.name] for rank in times]
        steps.append(
            fit.MeasuredStep(
                work=rank_work(trace.ops),
                wall=statistics.median(map(max, zip(*(t["wall_s"] for t in mine), strict=True))),
                cpu=fmean(statistics.median(t["cpu_s"]) for t in mine),
            )
        )
    return steps


def source() -> str:
    """Say what was measured: machine, versions, day."""
    import torch
    import transformers

    from planner.calibration.machine import cpu_name

    return (
        f"{cpu_name()}, one core a rank, {WORLD_SIZE} ranks at once; torch {torch.__version__}, "
        f"transformers {transformers.__version__}; {date.today().isoformat()}"  # noqa: DTZ011
    )
