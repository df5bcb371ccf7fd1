"""TorchRec's own planner (``EmbeddingShardingPlanner``, torchrec 1.9.2), ported: without torch."""
