"""Each row-wise shard is charged the ids of the whole table for its input distribution.

A shard of W gets 1/W of the ids; in sum over the ranks a row-wise table costs W times what it costs
table-wise.
"""

from tables import bags, options

for ranks in (2, 8):
    found = options(bags(1_000_000), ranks)
    times = {
        kind: sum(shard.perf.input_dist_comms for shard in found["t0", kind].shards)
        for kind in ("table_wise", "row_wise")
    }
    ratio = times["row_wise"] / times["table_wise"]
    print(f"{ranks} ranks: input distribution row-wise / table-wise = {ratio:.1f}")
