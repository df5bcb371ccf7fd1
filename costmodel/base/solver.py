"""HiGHS, which solves linear and integer programs, without its messages."""

from typing import Any


def quiet_solver() -> Any:  # noqa: ANN401 - a highspy.Highs
    """Return a solver of HiGHS that prints nothing.

    HiGHS 1.16 prints its version to standard output, before any JSON of ours, when a new solver
    turns its callbacks on, which is before it can be given an option.

    All solvers of a process have one thread: HiGHS 1.16 solves nothing (``HighsStatus.kError``)
    where one is given another number of threads than the first.
    """
    import highspy

    silent = ("output_flag", False)

    class QuietSolver(highspy.Highs):
        def enableCallbacks(self) -> Any:  # noqa: ANN401, N802 - highspy's name and type
            self.setOptionValue(*silent)
            callbacks: Any = super()
            return callbacks.enableCallbacks()

    made: Any = QuietSolver
    solver = made()
    solver.setOptionValue(*silent)
    solver.setOptionValue("threads", 1)
    return solver
