"""Solving a program of pulp by HiGHS, from a first solution and within limits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from costmodel.base.errors import MachineError, MissingDependencyError
from costmodel.base.solver import quiet_solver
from costmodel.base.units import Seconds

if TYPE_CHECKING:
    import pulp

_REFUSED = (
    "it solves nothing in a process where another library gave it another number of threads: "
    "plan in a process of its own"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to stop solving."""

    time: Seconds | None = None
    gap: float = 1e-3
    """Relative gap between the best solution and the solver's bound."""
    max_nodes: int | None = None
    """Most nodes of the branch-and-bound tree, a limit that does not depend on the machine."""


def check_pulp(sharder: str) -> None:
    """Raise MissingDependencyError unless pulp, which a sharder needs, is installed."""
    try:
        import pulp  # noqa: F401 -- an extra brings it
    except ImportError as error:
        raise MissingDependencyError("pulp", f"the sharder `{sharder}`", "search") from error


def solve(
    program: "pulp.LpProblem", first: Mapping[str, float] | None, limits: Limits
) -> tuple[float | None, bool]:
    """Solve a program from a first solution, or none, and set its variables to the best values.

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

    Raises
    ------
    MachineError
        HiGHS ended with an error: its values, all 0, would be no solution.

    """
    import highspy
    import pulp

    model = program.solverModel = quiet_solver()
    options = {
        "mip_rel_gap": limits.gap,
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
    if model.run() == highspy.HighsStatus.kError:
        raise MachineError("HiGHS ended with an error where it was to solve a program", _REFUSED)
    for variable, value in zip(variables, model.getSolution().col_value, strict=False):
        variable.varValue = value
    optimal = model.getModelStatus() == highspy.HighsModelStatus.kOptimal
    bound = float(model.getInfo().mip_dual_bound)
    return (bound if bound > 0 else None), optimal


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
