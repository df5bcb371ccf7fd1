"""A validation run as plain data, SI units in the keys."""

from typing import Any

from planner.validation.judge import Outcome, cpu_error, geomean_error
from planner.validation.validate import Validation


def validation_data(validation: Validation) -> dict[str, Any]:
    """Return everything that was predicted and measured."""
    verdict = validation.verdict
    return {
        "hardware": validation.hardware,
        "device": validation.device.value,
        "world_size": validation.job.world_size,
        "repeats": validation.job.repeats,
        "steps": validation.job.steps,
        "plans": [outcome_data(each) for each in validation.outcomes],
        "machine_slowdown": {family.value: f for family, f in validation.slowdowns.items()},
        "median_machine_slowdown": validation.slowdown,
        "geomean_error_at_that_speed": geomean_error(validation.at_speed)
        if validation.at_speed
        else None,
        "geomean_cpu_error_at_that_speed": cpu_error(validation.at_speed)
        if validation.at_speed
        else None,
        "geomean_error": verdict.geomean_error,
        "geomean_cpu_error": verdict.cpu_error,
        "kendall_tau": verdict.tau,
        "num_pairs_told_apart": verdict.told_apart,
        "kendall_tau_told_apart": verdict.tau_told_apart,
        "picked": verdict.picked,
        "fastest": verdict.fastest,
        "regret": verdict.regret,
        "success": verdict.success,
        "open_pairs": [list(pair) for pair in verdict.open_pairs],
    }


def outcome_data(each: Outcome) -> dict[str, Any]:
    """Return one plan's outcome."""
    return {
        "name": each.name,
        "predicted_s": each.predicted,
        "measured_s": each.measured,
        "noise_s": each.noise,
        "error": each.error,
        "rounds_s": list(each.rounds),
        "foreign_share": list(each.foreign),
        "cpu_s": list(each.cpu),
        "predicted_cpu_s": list(each.prediction.busy),
        "phases": [
            {"rank": rank, "predicted_s": dict(ours), "measured_s": dict(theirs)}
            for rank, (ours, theirs) in enumerate(
                zip(each.prediction.phases, each.phases, strict=False)
            )
        ],
    }
