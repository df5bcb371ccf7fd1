"""GreedyProposer with a threshold remembers the best rating of the model before.

``load`` resets the search space, but not the best rating and the count of worse ones: a second,
slower model is given up after ``threshold`` proposals, whatever they are.
"""

from tables import bags, gpus
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation

SMALL, LARGE = bags(1000, dim=4), bags(*[1_000_000] * 6, dim=128)


class Counting(GreedyProposer):
    """Counts what it proposes."""

    proposals = 0

    def propose(self):  # noqa: ANN201 - as TorchRec has it
        """Count, and propose."""
        proposal = super().propose()
        self.proposals += proposal is not None
        return proposal


def proposals(*models) -> int:  # noqa: ANN002 - modules
    """Return how many proposals the last of some models gets from one planner."""
    proposer = Counting(threshold=10)
    planner = EmbeddingShardingPlanner(
        topology=gpus(4),
        proposer=proposer,
        storage_reservation=FixedPercentageStorageReservation(0.1),
        stats=[],
    )
    for model in models:
        proposer.proposals = 0
        planner.plan(model, [EmbeddingBagCollectionSharder()])
    return proposer.proposals


print(f"proposals for the large model: {proposals(LARGE)}")
print(f"proposals for it after a small one: {proposals(SMALL, LARGE)}")
