"""What is carried to a machine that was left out, and what its errors are."""

import json
from math import log

import numpy as np
import pytest

from bench.left_out_machines import RESULTS, LeftOut, carried, left_out, spreads
from costmodel.domain.hardware import HardwareProfile
from costmodel.uncertainty.error_model import CARRIED, NOT_MEASURED, Cause
from planner.files.profiles import load_profile


def test_a_machine_carried_to_itself_is_as_fast() -> None:
    gpu, own = carried("h100-sxm", "h100-sxm").gpu, load_profile("h100-sxm").gpu
    assert gpu.memory_bandwidth == pytest.approx(own.memory_bandwidth)
    assert gpu.gemm["bf16"].peak == own.gemm["bf16"].peak


def test_bandwidth_grows_with_the_datasheet_s() -> None:
    gpu, donor = carried("h100-sxm", "h200-sxm").gpu, load_profile("h100-sxm").gpu
    assert gpu.memory_bandwidth == pytest.approx(donor.memory_bandwidth * 4800 / 3350)


def test_what_all_kernels_are_off_by_is_shared() -> None:
    def times(machine: HardwareProfile) -> np.ndarray:  # type: ignore[type-arg]
        # carried, everything takes twice as long; the second kernel half as long again
        slow = 2.0 if " by " in machine.gpu.name else 1.0
        return np.array([slow, slow * (1.5 if slow > 1 else 1.0)])

    (first, _) = left_out(("h100-sxm", "h200-sxm"), times)
    assert first.shared == pytest.approx(-log(2.0) - log(1.5) / 2)
    assert first.own == pytest.approx(log(1.5) / 2)


def test_few_machines_say_less_than_many() -> None:
    each = LeftOut(machine="m", shared=0.1, own=0.2, logs=(0.1,))
    assert spreads([each] * 2)[0] > spreads([each] * 20)[0] > 0.1
    assert spreads([each] * 2)[1] == pytest.approx(0.2)


def test_the_error_model_has_what_was_found() -> None:
    found = json.loads(RESULTS.read_text())["families"]
    for family, cause in {"gemm": Cause.GEMM, "all_to_all": Cause.ALL_TO_ALL}.items():
        assert NOT_MEASURED[cause].shared == pytest.approx(found[family]["shared"], abs=0.01)
        assert NOT_MEASURED[cause].own == pytest.approx(found[family]["own"], abs=0.01)
    assert CARRIED[Cause.LOOKUP] == pytest.approx(found["embedding_forward"]["shared"], abs=0.01)
    assert CARRIED[Cause.UPDATE] == pytest.approx(found["embedding_backward"]["shared"], abs=0.01)
