"""Running a solver on a program of pulp: HiGHS, or CBC where that is missing."""

from collections.abc import Mapping, Sequence
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

    Returns the bound on the program's objective, if the solver tells, and whether it is optimal.
    """
    import pulp

    highs = pulp.HiGHS(msg=False, gapRel=limits.gap, timeLimit=limits.time, threads=1)
    if highs.available():
        return _solve_highs(program, highs, first, limits)
    return _solve_cbc(program, first, limits)


def _solve_highs(
    program: "pulp.LpProblem",
    solver: "pulp.HiGHS",
    first: Mapping[str, float] | None,
    limits: Limits,
) -> tuple[float | None, bool]:
    """Solve with HiGHS through pulp's interface, but with a first solution and the bound."""
    import highspy

    solver.createAndConfigureSolver(program)
    solver.buildSolverModel(program)
    model: Any = program.solverModel
    if limits.max_nodes is not None:
        model.setOptionValue("mip_max_nodes", limits.max_nodes)
    variables: Sequence[Any] = program.variables()
    if first is not None:
        start = highspy.HighsSolution()
        start.col_value = [first.get(variable.name, 0.0) for variable in variables]
        model.setSolution(start)
    model.run()
    info = model.getInfo()
    values = model.getSolution().col_value
    for variable, value in zip(variables, values, strict=False):
        variable.varValue = value
    optimal = model.getModelStatus() == highspy.HighsModelStatus.kOptimal
    bound = float(info.mip_dual_bound)
    return (bound if bound > 0 else None), optimal


def _solve_cbc(
    program: "pulp.LpProblem", first: Mapping[str, float] | None, limits: Limits
) -> tuple[float | None, bool]:
    """Solve with CBC, which pulp brings along; it does not tell its bound but where it is met."""
    import pulp

    if first is not None:
        for variable in program.variables():
            variable.setInitialValue(first.get(variable.name, 0.0))
    solver = pulp.COIN_CMD(
        path=_cbc_path(),
        msg=False,
        gapRel=limits.gap,
        timeLimit=limits.time,
        maxNodes=limits.max_nodes,
        warmStart=first is not None,
        threads=1,
    )
    program.solve(solver)
    optimal = program.sol_status == pulp.LpSolutionOptimal
    value = pulp.value(program.objective)
    return (float(value) * (1 - limits.gap) if optimal and value is not None else None), optimal


def _cbc_path() -> str | None:
    """Return where pulp keeps its own CBC; None: look for ``cbc`` on the path."""
    import pulp

    bundled = getattr(pulp, "PULP_CBC_CMD", None)  # goes away with pulp 4
    path = getattr(bundled, "pulp_cbc_path", None)
    return str(path) if path and pulp.COIN_CMD(path=path).available() else None
