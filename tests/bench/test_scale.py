"""The table of weak scaling, and what its committed results show."""

import pytest

from bench.readme import result
from bench.scale import CASES, GPUS, ScaledPlan, per_gpu, table


def row(step_ms: float, gpus: int, group: int) -> dict[str, object]:
    return {
        "step_ms": step_ms,
        "bound_ms": 90.0,
        "bound_is_bare": False,
        "averaging_ms": 8.0 if group < gpus else 0.0,
        "group": group,
        "consecutive": False,
        "samples_per_s": 4096 * gpus / (step_ms / 1e3),
        "wall_s": 30.0,
        "memory_gib": 0.4,
    }


def test_throughput_is_over_that_on_64_gpus_in_the_same_way() -> None:
    names = [
        ScaledPlan("open_856", way, gpus).name
        for way, gpus in (("one group", 64), ("groups", 64), ("groups", 1024))
    ]
    made = dict(zip(names, (row(100, 64, 64), row(98, 64, 64), row(115, 1024, 128)), strict=True))
    assert per_gpu(made, names[2]) == pytest.approx(98 / 115)
    assert "| open_856 | 1,024 | groups | 115 ms | 90 ms | 8.0 ms | 128, 8 apart | 85% |" in table(
        made
    )


def test_a_plan_that_torchrec_does_not_find_or_not_in_time_is_said_so() -> None:
    names = [ScaledPlan("open_856", "TorchRec's planner", gpus).name for gpus in (64, 256, 1024)]
    none = {"no_plan": "it does not fit", "wall_s": 301.0, "memory_gib": 0.2}
    found = [{**row(100, n, n), "status": how} for n, how in ((64, "converged"), (256, "limit"))]
    made = dict(zip(names, (*found, none), strict=True))
    lines = table(made).splitlines()[2:]
    assert "| 100 ms | 90 ms | - | all | 100% |" in lines[0]
    assert "| 100 ms (stopped) |" in lines[1]
    assert "| no plan | - | - | - | - | 301 s | 0.2 GiB |" in lines[2]


def test_groups_keep_four_fifths_of_the_throughput_to_4096_gpus() -> None:
    kept = result("scale")
    assert set(kept) <= set(CASES)
    shares = [per_gpu(kept, ScaledPlan("open_856", "groups", gpus).name) for gpus in GPUS[2:]]
    assert min(share for share in shares if share) > 0.8
    alone = per_gpu(kept, ScaledPlan("open_856", "one group", 4096).name)
    assert alone is not None
    assert alone < 0.5
