from dataclasses import replace

from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DenseModel, EmbeddingTable, Optimizer, Workload
from planner import Planned, explain, plan

FOREACH = "dense optimizer with foreach=True"


def remedies(kind: ShardingType) -> dict[str, float]:
    tables = (
        EmbeddingTable(name="small", num_embeddings=1000, embedding_dim=16, sharding_types=(kind,)),
        EmbeddingTable(name="large", num_embeddings=10**6, embedding_dim=16, sharding_types=(
            ShardingType.TABLE_WISE,
        )),
    )  # fmt: skip
    work = Workload(
        tables=tables, dense=replace(DenseModel(), optimizer=Optimizer.ADAGRAD),
        local_batch_size=512,
    )  # fmt: skip
    planned: Planned = plan(work, gpus=2, hardware="h100-sxm", max_plans=50, seed=0)
    faster = {each.change: each.step_time for each in explain(planned).remedies}
    return {**faster, "now": planned.report.step_time}


def test_foreach_helps_where_a_replicated_table_brings_the_optimizer_s_loop() -> None:
    found = remedies(ShardingType.DATA_PARALLEL)
    assert found[FOREACH] < 0.9 * found["now"]


def test_foreach_is_what_torch_takes_without_replicated_tables() -> None:
    assert FOREACH not in remedies(ShardingType.TABLE_WISE)


def test_fewer_launches_help_where_the_host_is_slower_than_the_gpu() -> None:
    found = remedies(ShardingType.TABLE_WISE)
    assert found["dense model in CUDA graphs"] < found["dense model by torch.compile"]
    assert found["dense model by torch.compile"] < 0.95 * found["now"]
