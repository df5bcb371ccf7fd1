"""Why tests of TorchRec's cannot pass with our planner in the place of its own."""

_PLANNERS = "planner/tests/test_planners.py::"
_EXECUTOR = "planner/tests/test_executor.py::"
_PROVENANCE = "expects `request_caps` as the source of hardware; it is a profile, which is named"
_ON_GLOO = (
    "tests/test_model_parallel_gloo.py::",
    "tests/test_model_parallel_gloo_gpu_single_rank.py::",
)
_OF_DMP = {
    "ModelParallelStateDictTestGloo::test_load_state_dict_cw_multiple_shards": (
        "expects one shard for every four columns, on one rank; one shard is faster there"
    ),
    "ModelParallelSparseOnlyTestGloo::test_initialize_torch_state_error_includes_table_name": (
        "expects a sharded tensor, whose state it breaks; on one rank the table is replicated"
    ),
}
_OTHER_CHOICE = (
    "expects the choice of TorchRec's cost model; one row-wise group has the shorter step here"
)
REASONS = {
    f"{_PLANNERS}TestEmbeddingShardingPlanner::test_tw_solution": _OTHER_CHOICE,
    f"{_PLANNERS}TestEmbeddingShardingPlanner::test_hidden_rw_solution": _OTHER_CHOICE,
    f"{_PLANNERS}TestEmbeddingShardingPlanner::test_fail_then_rerun": (
        "the GPUs are four times as large as the test has them, for buffers that TorchRec does not "
        "count (bench.torchrec_suite.looked_at): the table fits"
    ),
    f"{_PLANNERS}TestAutoPlannerWithScaleupProposer::test_auto_sharder_solution": (
        "expects what a proposer of TorchRec's proposes: caches; all fits in HBM, which is faster"
    ),
    f"{_PLANNERS}TestAutoPlannerWithScaleupProposer::test_planner_with_virtual_table": (
        "expects two shards of tables that nothing constrains; they are replicated, without shards"
    ),
    f"{_PLANNERS}TestExtractPlan::test_extract_plan_properties_preservation": (
        "takes every option to have one shard; the plan has two, row-wise"
    ),
    f"{_PLANNERS}TestFixedAbsoluteStorageReservation::"
    "test_error_message_with_fixed_absolute_reservation": (
        "expects TorchRec's words for a reservation in an error"
    ),
    f"{_EXECUTOR}DefaultPlannerExecutorTest::test_run_populates_session_observability": _PROVENANCE,
    f"{_EXECUTOR}BuildComponentsFromConfigTest::"
    "test_build_topology_records_request_caps_source": _PROVENANCE,
    f"{_EXECUTOR}DefaultPlannerExecutorTest::test_unsupported_variant_raises": (
        "expects that only variants of TorchRec's open part are planned; ours plans, and warns"
    ),
    **{file + test: reason for file in _ON_GLOO for test, reason in _OF_DMP.items()},
}
"""By file, class and name."""
