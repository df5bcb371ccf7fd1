"""What a validation run tells: its table, and all of it as plain data, SI units in the keys."""

from typing import Any

from costmodel.base.units import Seconds
from planner.show.columns import (
    ERROR,
    SHARE,
    Column,
    Keys,
    Quantity,
    plain,
    rows_data,
    times,
    untold,
)
from planner.show.format import durations
from planner.validation.judge import Outcome, Verdict, cpu_error, geomean_error
from planner.validation.validate import Validation

_KEYS: Keys = {
    Verdict: {
        "cpu_error": "geomean_cpu_error",
        "tau": "kendall_tau",
        "told_apart": "num_pairs_told_apart",
        "tau_told_apart": "kendall_tau_told_apart",
    }
}


def outcome_columns(largest: Seconds = 0.0) -> list[Column[Outcome]]:
    """Return the columns of plans: what was predicted of them, and what they took."""
    time = times(largest)
    by_rank = Quantity(lambda seconds: "  ".join(durations(seconds, largest)))
    others = Quantity(lambda shares: SHARE(max(shares, default=0.0)))
    return [
        Column("Plan", lambda each: each.name, key="name"),
        Column("Predicted", lambda each: each.predicted, time, key="predicted_s"),
        Column("Measured", lambda each: each.measured, time, key="measured_s"),
        Column("±", lambda each: each.noise, time, key="noise_s", priority=1),
        Column("Error", lambda each: each.error, ERROR, key="error"),
        Column("CPU per rank", lambda each: each.cpu, by_rank, key="cpu_s", priority=3),
        Column(
            "CPU predicted", lambda each: each.prediction.busy, by_rank, key="predicted_cpu_s",
            priority=4,
        ),
        Column("Others", lambda each: each.foreign, others, key="foreign_share", priority=2),
        untold("rounds_s", lambda each: each.rounds),
        untold("phases", _phases),
    ]  # fmt: skip


def _phases(each: Outcome) -> list[dict[str, Any]]:
    both = zip(each.prediction.phases, each.phases, strict=False)
    return [
        {"rank": rank, "predicted_s": ours, "measured_s": theirs}
        for rank, (ours, theirs) in enumerate(both)
    ]


def validation_data(validation: Validation) -> dict[str, Any]:
    """Return everything that was predicted and measured."""
    verdict, at_speed = validation.verdict, validation.at_speed
    return {
        "hardware": validation.hardware,
        "device": validation.device.value,
        "world_size": validation.job.world_size,
        "repeats": validation.job.repeats,
        "steps": validation.job.steps,
        "plans": rows_data(outcome_columns(), validation.outcomes),
        "machine_slowdown": plain(validation.slowdowns),
        "median_machine_slowdown": validation.slowdown,
        "geomean_error_at_that_speed": geomean_error(at_speed) if at_speed else None,
        "geomean_cpu_error_at_that_speed": cpu_error(at_speed) if at_speed else None,
        **plain(verdict, _KEYS),
        "success": verdict.success,
    }
