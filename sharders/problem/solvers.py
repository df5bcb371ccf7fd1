"""Solving a program of pulp by HiGHS, from a first solution and within limits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from costmodel.base.units import Seconds

if TYPE_CHECKING:
    import pulp


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to stop solving."""

    time: Seconds | None = None
    gap: float = 1e-3
    """Relative, between the best solution and the solver's bound."""
    max_nodes: int | None = None
    """Most nodes of the branch-and-bound tree: a limit that does not depend on the machine."""


def solve(
    program: "pulp.LpProblem", first: Mapping[str, float] | None, limits: Limits
) -> tuple[float | None, bool]:
    """Solve a program from a first solution, or none; the variables get the best values found.

    pulp's own ``solve`` takes no first solution, so HiGHS is run by the steps that it consists of.

    Parameters
    ----------
    program
        Its variables were made by ``LpProblem.add_variable``.
    first
        Values of variables by name; those that are not named are 0.
    limits
        When to stop.

    Returns
    -------
    The solver's bound on the objective, where it has one, and whether the values are optimal.

    """
    import highspy
    import pulp

    model = program.solverModel = _quiet_solver()
    options = {
        "mip_rel_gap": limits.gap,
        "threads": 1,
        "time_limit": limits.time,
        "mip_max_nodes": limits.max_nodes,
    }
    for name, value in options.items():
        if value is not None:
            model.setOptionValue(name, value)
    pulp.HiGHS().buildSolverModel(program)
    variables = _columns(program)
    if first is not None:
        start = highspy.HighsSolution()
        start.col_value = [first.get(variable.name, 0.0) for variable in variables]
        model.setSolution(start)
    model.run()
    for variable, value in zip(variables, model.getSolution().col_value, strict=False):
        variable.varValue = value
    optimal = model.getModelStatus() == highspy.HighsModelStatus.kOptimal
    bound = float(model.getInfo().mip_dual_bound)
    return (bound if bound > 0 else None), optimal


def _quiet_solver() -> Any:  # noqa: ANN401 - a highspy.Highs
    """Return a solver of HiGHS that prints nothing.

    HiGHS 1.16 prints its version to standard output, before any JSON of ours, when a new solver
    turns its callbacks on, which is before it can be given an option.
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
    return solver


def _columns(program: "pulp.LpProblem") -> Sequence[Any]:
    """Return the variables in the order of the solver's columns.

    pulp 4 gives columns to the variables that are used, in the order in which they were made; pulp
    3 to all of them, by name.
    """
    exported = getattr(program, "exported_variables", program.variables)
    variables: Sequence[Any] = exported()
    return variables


def weighted_sum(terms: "Iterable[tuple[pulp.LpVariable, float]]") -> "pulp.LpAffineExpression":
    """Return the sum of variables, each times a factor.

    pulp 3 and 4 have no constructor of expressions in common, but both have ``lpSum``.
    """
    import pulp

    return pulp.lpSum(factor * variable for variable, factor in terms)
