"""Choose the size of groups for TorchRec's 2D sparse parallelism, and write DMPCollection's plan.

python examples/plan_groups.py

The tables are those of MLPerf's DLRM-DCNv2 (Criteo 1TB, multi-hot), trained on 256 H100. Needs
torch, torchrec 1.9.2, and no GPU.
"""

import planner
from planner.torchrec import export_plan

ROWS = (
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282,
    10, 2_209, 11_938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108,
    36,
)  # fmt: skip
IDS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
MODULE = "sparse_arch.embedding_bag_collection"  # where the tables live in TorchRec's DLRM
JOB = {"gpus": 256, "hardware": "h100-sxm", "seed": 0, "max_plans": 3000}
GROUPS = planner.Grouping(group_size="auto", sync_interval=20)  # model.sync() after 20 steps
MS = 1e-3


def make_workload() -> planner.Workload:
    """Return the tables and the dense part, as MLPerf's reference has them."""
    tables = (
        planner.EmbeddingTable(
            name=f"t_cat_{number}", num_embeddings=rows, embedding_dim=128, pooling_factor=ids
        )
        for number, (rows, ids) in enumerate(zip(ROWS, IDS, strict=True))
    )
    dense = planner.DenseModel(
        bottom_mlp=(512, 256, 128),
        interaction=planner.Interaction.DCN_V2,
        top_mlp=(1024, 1024, 512, 256, 1),
    )
    return planner.Workload(tables=tuple(tables), dense=dense, local_batch_size=2048)


def main() -> None:
    """Print the sizes that were weighed, why one was chosen, and what goes into DMPCollection."""
    workload = make_workload()
    planned = planner.plan(workload, replica_group=GROUPS, **JOB)
    report = planned.report
    for each in report.weighed_groups:
        step = "-" if each.modelled is None else f"{each.modelled.seconds / MS:.2f} ms"
        size = f"{each.num_groups:>4} x {each.group_size:<4} {each.place:<12}"
        print(f"{size}{step:>10} after {each.num_plans:>5,} plans  {each.outcome}")
    one = planner.plan(workload, **JOB).report
    share = report.averaging_time / GROUPS.sync_interval
    print(
        f"groups of {report.world_size}: {report.modelled.seconds / MS:.2f} ms a step by the "
        f"models, {share / MS:.2f} ms of it for averaging; no groups: "
        f"{one.modelled.seconds / MS:.2f} ms"
    )
    planned.save("groups.json")
    export_plan("groups.json", "groups.pt", module=MODULE)
    print("wrote groups.json and groups.pt; `planner torchrec export groups.json` says the call")


if __name__ == "__main__":
    main()
