import os
from pathlib import Path

import pytest

for package in ("fbgemm_gpu", "torchrec"):
    pytest.importorskip(package)
pytestmark = [
    pytest.mark.nightly,  # two processes that load torch and train
    pytest.mark.skipif(
        hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) < 2,
        reason="every rank needs a core",
    ),
]

from bench.gpu_study.accelerator import open_accelerator  # noqa: E402
from bench.gpu_study.blind import predict_step  # noqa: E402
from bench.gpu_study.points import StepPoint  # noqa: E402
from bench.gpu_study.steps import measure_step  # noqa: E402
from planner.files.profiles import load_profile  # noqa: E402


def test_two_ranks_train_and_are_predicted(tmp_path: Path) -> None:
    point = StepPoint(model="dlrm", local_batch_size=64, world_size=2, table_bytes=20_000_000)
    record = measure_step(point, open_accelerator("cpu", 0, 32e6), tmp_path)
    assert record.repeats == 3
    predicted = predict_step(point, load_profile("cpu-gloo"), "any")
    # a busy machine takes many times as long as an idle one, and never much less
    assert 0.5 * predicted.step < record.seconds["synchronized"] < 100 * predicted.step
