"""A workload file to start from: a small model, every line of it explained."""

TEMPLATE = """\
# A small model, to be changed into yours; `planner schema workload` has every field.
name: demo
local_batch_size: 8192            # samples per GPU
pipeline: sparse_dist             # TorchRec's TrainPipelineSparseDist; none, or dlrm for plain DLRM
optimizer: rowwise_adagrad        # of the tables, fused into their backward
dense:                            # the rest of the model, data parallel
  bottom_mlp: [512, 256, 128]     # widths of the layers that dense features go through
  interaction: dot
  top_mlp: [1024, 1024, 512, 256, 1]
  precision: bf16
defaults:                         # of all tables, unless they say otherwise
  embedding_dim: 128              # columns
  data_type: fp32                 # of the weights
  inputs: {zipf: 1.05}            # how a batch reads rows: some are hot, or unique_fraction: 0.2
tables:
  # pooling_factor: mean ids per sample; `planner inspect` counts it, and inputs, on recorded ids
  - {name: item_id, num_embeddings: 40_000_000, pooling_factor: 20}
  - {name: user_history, num_embeddings: 5_000_000, pooling_factor: 80}
  - {name: query_words, num_embeddings: 2_000_000, pooling_factor: 30}
  - {name: advertiser, num_embeddings: 300_000, pooling_factor: 1}
  # what a plan may do with a table: sharding_types, compute_kernels, ranks
  - {name: country, num_embeddings: 200, sharding_types: [data_parallel, table_wise]}
"""

FROM_MODEL = """\
# Read off the TorchRec model of {factory}. What a model does not say is assumed, and matters:
# pooling_factor (ids per sample) and inputs (how often a batch reads the same rows) of every table;
# `planner inspect` counts both on recorded ids. `dense` is what was read of the rest: operators, or
# layers that are not all of it where it has `most_products`. `planner schema workload` has fields.
"""
