"""An all-reduce inside one host is timed with the network's bandwidth, 12.5 GB/s for each GPU."""

from torchrec.distributed.planner.types import BasicCommsBandwidths, CollectiveType

bandwidths, per_gb = BasicCommsBandwidths(), 1e3 / 2**30  # TorchRec counts bytes per millisecond
for kind in (CollectiveType.ALL_TO_ALL, CollectiveType.ALL_REDUCE):
    for world_size in (8, 16):
        rate = bandwidths.get_bw(8, world_size, kind)
        print(f"{kind.name} on {world_size} GPUs, 8 in a host: {rate * per_gb:.1f} GiB/s")
