"""One rank of the test of NVLink domains: trains rows split over two hosts of two ranks.

python domain_worker.py RANK WORLD_SIZE FOLDER
"""

import json
import sys
from pathlib import Path

from torchrec_cases import Model, cases, joined
from torchrec_worker import reference, sharded

HOSTS, LOCAL_WORLD_SIZE = 2, 2


def main() -> None:
    rank, world_size = map(int, sys.argv[1:3])
    folder = Path(sys.argv[3])
    with joined(rank, world_size, LOCAL_WORLD_SIZE, folder):
        constraints = dict(cases())["table_row_wise"]
        results = {
            "reference": (reference(Model, world_size), []),
            "domain": sharded(Model, constraints, LOCAL_WORLD_SIZE, pod_size=HOSTS),
        }
        (folder / f"losses_{rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
