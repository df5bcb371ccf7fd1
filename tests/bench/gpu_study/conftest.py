"""Fits of products in these tests are rough: what a study makes of them is tried, not how good."""

from collections.abc import Iterator

import pytest

from planner.calibration import fit_gemm


@pytest.fixture(scope="module", autouse=True)
def rough_fits() -> Iterator[None]:
    """Descend once, and in few steps: thirty fits take four fifths of these tests' time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_gemm, "NUM_STARTS", 1)
        patch.setattr(fit_gemm, "ITERATIONS", 100)
        patch.setattr(fit_gemm, "MORE_ITERATIONS", 100)
        yield
