"""TorchRec's pipelines beside its own measurement of them."""

import pytest

from bench.anchors.pipelines import AnomalyDetection, gains, measured
from bench.fitting.sources import DATA
from costmodel.domain.workload import Pipeline

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not DATA.exists(), reason="the shared measurements are not here")
def test_gains_have_the_measured_sign_and_order() -> None:
    predicted = {each: gain for each, (_, gain) in gains("h100-sxm", AnomalyDetection).items()}
    fused, semi = Pipeline.FUSED_SPARSE_DIST, Pipeline.SEMI_SYNC
    known = {each: gain for each, (_, gain) in measured().items()}
    assert known[semi] < known[fused] < 0
    assert predicted[semi] < predicted[fused] < 0
