"""The program of ``ilp_model`` without ranks, and with fractions of options: small at any scale."""

from sharders.baselines.ilp_model import IlpModel
from sharders.baselines.solvers import Limits, solve, weighted_sum

HEADROOM = 0.97
"""Share of all memory that a relaxed plan may use: whole shards do not fill ranks evenly."""


def option_shares(model: IlpModel, limits: Limits) -> list[list[float]]:
    """Return the share of every option of every table that makes the mean rank done soonest.

        minimise  M
        for every table:  sum of shares x = 1,  sum of shard loads x <= M
        over all tables:  sum of total loads x <= W M,  sum of bytes x <= capacity of all

    One linear program; all shares are 0 if time is up first.
    """
    import pulp

    topology = model.problem.topology
    program = pulp.LpProblem("relaxation", pulp.LpMinimize)
    largest = program.add_variable("largest", lowBound=0)
    program += largest
    unit = (
        max(
            candidate.cost.total_load for candidates in model.candidates for candidate in candidates
        )
        or 1.0
    )
    load, held = [(largest, -1.0)], []
    shares = []
    for t, candidates in enumerate(model.candidates):
        x = [
            program.add_variable(f"x_{t}_{o}", lowBound=0, upBound=1)
            for o in range(len(candidates))
        ]
        for variable, candidate in zip(x, candidates, strict=True):
            load.append((variable, candidate.cost.total_load / unit / topology.world_size))
            total = candidate.bytes_per_shard * candidate.option.num_shards(topology)
            held.append((variable, total / (HEADROOM * model.problem.total_capacity)))
        program += pulp.lpSum(x) == 1
        own = [(v, c.cost.shard_load / unit) for v, c in zip(x, candidates, strict=True)]
        program += weighted_sum([*own, (largest, -1.0)]) <= 0
        shares.append(x)
    program += weighted_sum(load) <= 0
    program += weighted_sum(held) <= 1
    solve(program, None, Limits(time=limits.time))
    return [[variable.varValue or 0.0 for variable in x] for x in shares]
