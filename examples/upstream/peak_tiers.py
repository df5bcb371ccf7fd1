"""EmbeddingStats names wrong ranks for all tiers of memory but the first.

After each tier its ranks are dropped from the list, and the indices of what is left are printed as
ranks.
"""

from tables import bags, gpus
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation

ROWS = (4_000_000, 3_000_000, 2_000_000, 1_000_000)
WHOLE = ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused"])


def in_order(options):  # noqa: ANN001, ANN201 - ShardingOptions
    """Put table i on rank i."""
    for option in options:
        option.shards[0].rank = int(option.name[1:])
    return options


class Lines(EmbeddingStats):
    """Keeps what is logged."""

    @property
    def tiers(self) -> list[str]:
        """Lines about tiers, the highest first."""
        found = [line.strip("# ") for line in vars(self)["_stats_table"] if "Top Tier" in line]
        return found[::-1]


stats = Lines()
EmbeddingShardingPlanner(
    topology=gpus(4),
    constraints={f"t{i}": WHOLE for i in range(len(ROWS))},
    storage_reservation=FixedPercentageStorageReservation(0.1),
    stats=stats,
    callbacks=[in_order],
).plan(bags(*ROWS), [EmbeddingBagCollectionSharder()])
print("table i, of 2.0, 1.5, 1.0 and 0.5 GB, is on rank i")
print("\n".join(stats.tiers))
