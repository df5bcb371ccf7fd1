"""Durations of operations that bounds count beside those of plans."""

import numpy as np
import pytest
from bound_options import described
from plans import mixed

from costmodel.bounds.feature_index import largest_features
from costmodel.bounds.op_times import OpTimes
from costmodel.domain.workload import Pipeline
from costmodel.step.synthesis import Templates, step_operations


@pytest.mark.parametrize(("local_batch_size", "least"), [(16, 0.82), (1024, 0.77), (16_384, 0.51)])
@pytest.mark.parametrize("pipeline", [Pipeline.NONE, Pipeline.SEMI_SYNC])
def test_no_operation_counts_for_more_than_its_mean_and_all_for_most_of_it(
    pipeline: Pipeline, local_batch_size: int, least: float
) -> None:
    work, ranks, both = mixed(pipeline, local_batch_size)
    for placed in both:
        options, index, z = described(work, ranks, placed)
        present = frozenset(index.groups)
        times = OpTimes(
            dict(enumerate(Templates(work, ranks).of(options.signature()).ops)),
            index,
            largest_features(options, index),
            present,
            ranks.hardware,
            options.busy_shares(present),
        ).of(z)
        ops = step_operations(work, ranks, placed, every_batch=False).ops
        means = [float(np.broadcast_to(op.seconds, 6).mean()) for op in ops]
        assert len(times) == len(ops)
        for number, mean in enumerate(means):
            assert times[number] <= mean * (1 + 1e-9) + 1e-15, ops[number].name
        assert least <= sum(times.values()) / sum(means) <= 1
