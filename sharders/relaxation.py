"""The program of ``ilp_model`` without ranks, and with fractions of options: small at any scale."""

from sharders.ilp_model import IlpModel

HEADROOM = 0.97
"""Share of all memory that a relaxed plan may use: whole shards do not fill ranks evenly."""


def option_shares(model: IlpModel) -> list[list[float]]:
    """Return the share of every option of every table that makes the mean rank done soonest.

        minimise  M
        for every table:  sum of shares x = 1,  sum of shard loads x <= M
        over all tables:  sum of total loads x <= W M,  sum of bytes x <= W capacity

    One linear program, solved by HiGHS.
    """
    import highspy
    import numpy as np

    topology = model.problem.topology
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)  # noqa: FBT003 -- highspy's signature
    solver.addVar(0.0, highspy.kHighsInf)
    solver.changeColCost(0, 1.0)
    ways = [way for table in model.ways for way in table]
    for _ in ways:
        solver.addVar(0.0, 1.0)
    unit = max(way.cost.total_load for way in ways) or 1.0
    memory = HEADROOM * topology.world_size * model.problem.capacity
    shards = [way.option.num_shards(topology) for way in ways]
    everything = np.arange(len(ways) + 1, dtype=np.int32)
    load = [way.cost.total_load / unit / topology.world_size for way in ways]
    held = [way.bytes_per_shard * count / memory for way, count in zip(ways, shards, strict=True)]
    solver.addRow(-highspy.kHighsInf, 0.0, len(everything), everything, np.array([-1.0, *load]))
    solver.addRow(-highspy.kHighsInf, 1.0, len(everything), everything, np.array([0.0, *held]))
    first = 1
    for table in model.ways:
        columns = np.arange(first, first + len(table), dtype=np.int32)
        solver.addRow(1.0, 1.0, len(columns), columns, np.ones(len(columns)))
        largest = np.array([way.cost.shard_load / unit for way in table])
        row = np.append(columns, 0).astype(np.int32)
        solver.addRow(-highspy.kHighsInf, 0.0, len(row), row, np.append(largest, -1.0))
        first += len(table)
    solver.run()
    values = list(solver.getSolution().col_value)[1:]
    ends = np.cumsum([len(table) for table in model.ways])
    return [values[end - len(table) : end] for table, end in zip(model.ways, ends, strict=True)]
