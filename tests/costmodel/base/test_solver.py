import numpy as np
import pytest

from costmodel.base.solver import quiet_solver


def test_a_solver_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    # HiGHS 1.16 prints its version, where commands print JSON
    solver = quiet_solver()
    solver.addVar(1.0, 4.0)
    solver.changeColsCost(1, np.array([0], dtype=np.int32), np.array([1.0]))
    solver.run()
    assert solver.getSolution().col_value == [1.0]
    assert capfd.readouterr() == ("", "")
