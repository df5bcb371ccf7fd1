"""A prediction from execution traces as JSON-able data: SI units, the unit in the key."""

from typing import Any

from planner.traces.predict.prediction import Prediction


def predict_data(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as plain data."""
    return {
        "traces": prediction.source,
        "hardware": prediction.hardware,
        "step_time_s": prediction.step_time,
        "measured_step_time_s": prediction.measured,
        "ranks": [
            {
                "rank": rank.rank,
                "predicted_s": rank.predicted,
                "measured_s": rank.measured,
                "stages_s": {stage.value: seconds for stage, seconds in rank.stages.items()},
            }
            for rank in prediction.ranks
        ],
        "critical_path_s": {
            stage.value: seconds for stage, seconds in prediction.timeline.breakdown().items()
        },
        "families": [
            {"family": each.family, "kernels_per_rank": each.count, "time_s": each.seconds}
            for each in prediction.families
        ],
        "num_kernels": prediction.num_kernels,
        "extrapolated_share": prediction.extrapolated,
        "unknown_operators": [
            {"name": each.name, "count": each.count, "time_share": each.share}
            for each in prediction.unknown
        ],
    }
