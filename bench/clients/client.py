"""The public code bases that are run, and where each is to be had."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.kept import SEED

SOURCES: Mapping[str, str] = {
    "dlrm": "https://github.com/facebookresearch/dlrm",
    "torchrec": "https://github.com/meta-pytorch/torchrec",
    "TorchEasyRec": "https://github.com/alibaba/TorchEasyRec",
}
"""Repositories, by the name of their folder."""
CONFIGURATION = ".config"
"""A script with this ending is a configuration of TorchEasyRec's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A script of others that trains a model, and how it is called."""

    name: str
    checkout: str
    """Folder of the code base, one of ``SOURCES``."""
    script: str
    """Below that folder."""
    function: str = "main"
    """Called with the settings."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    """Modules that it imports beside TorchRec's."""
    absent: tuple[str, ...] = ()
    """Packages that it imports and does not use before training ends."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Names of the script and what they stand for instead, as ``module:name``."""

    def missing(self, checkouts: Path) -> str:
        """Return what is not there and is needed; empty: it can be run."""
        if not (checkouts / self.checkout / self.script).exists():
            return f"no {self.script} in {checkouts / self.checkout}: {SOURCES[self.checkout]}"
        lacking = [name for name in self.packages if not is_installed(name)]
        return f"not installed: {', '.join(lacking)}" if lacking else ""


def is_installed(name: str) -> bool:
    """Tell whether a module can be found."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # nor its package
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What all runs have in common."""

    checkouts: Path
    steps: int = 8
    seconds: float = 2.0
    """Longest search of this planner."""
    seed: int = SEED
    hardware: str = ""
    """Profile of this planner; empty: the one that it takes without."""

    @property
    def profile(self) -> Mapping[str, str]:
        """The argument of this planner that names the profile."""
        return {"hardware": self.hardware} if self.hardware else {}


TZREC_PACKAGES = (
    "anytree", "google.protobuf", "grpc_tools", "pandas", "pyarrow", "safetensors", "sklearn",
    "tensorboard",
)  # fmt: skip
TZREC_ABSENT = (
    "alibabacloud_alikafka20190916", "alibabacloud_credentials", "common_io", "confluent_kafka",
    "faiss", "fbgemm_gpu_hstu", "feature_store_py", "graphlearn", "hstu_attn",
    "odps", "pyfg", "tensorrt", "torch_tensorrt", "triton",
)  # fmt: skip
"""Closed packages, and some that a CPU has no use for."""


def _configured(kind: str, name: str, **settings: object) -> Client:
    """Return a model of TorchEasyRec's with tables and a batch that two ranks can hold."""
    return Client(
        name=f"TorchEasyRec, {kind}",
        checkout="TorchEasyRec",
        script=f"examples/{name}{CONFIGURATION}",
        settings={"local_batch_size": 256, "most_rows": 200_000, **settings},
        packages=TZREC_PACKAGES,
        absent=TZREC_ABSENT,
    )


def _dlrm(name: str, *argv: str) -> Client:
    """Return dlrm's script with tables and a batch that two ranks can hold."""
    given = ["--embedding_dim=64", "--batch_size=256", "--limit_train_batches=100", *argv]
    script = "torchrec_dlrm/dlrm_main.py"
    return Client(name=name, checkout="dlrm", script=script, settings={"argv": given})


def _example(name: str, script: str, function: str = "train", **fields: Any) -> Client:  # noqa: ANN401
    """Return one of TorchRec's examples."""
    return Client(
        name=f"TorchRec, {name}",
        checkout="torchrec",
        script=f"examples/{script}.py",
        function=function,
        **fields,
    )


GOLDEN = {"num_embeddings": 20_000, "embedding_dim": 64}
CLIENTS: tuple[Client, ...] = (
    _dlrm(
        "dlrm_main",
        "--learning_rate=1",
        "--num_embeddings_per_feature=" + ",".join(["40000", "500"] * 13),
    ),
    _dlrm(
        "dlrm_main, DCN",
        "--learning_rate=0.01", "--adagrad", "--interaction_type=dcn", "--dcn_low_rank_dim=64",
        "--multi_hot_distribution_type=uniform",
        "--num_embeddings_per_feature=" + ",".join(["20000", "300"] * 13),
        "--multi_hot_sizes=" + ",".join(["8", "1"] * 13),
    ),
    _example("golden_training", "golden_training/train_dlrm", settings=GOLDEN),
    _example(
        "golden_training with a replicated table",
        "golden_training/train_dlrm_data_parallel",
        settings=GOLDEN,
    ),
    _example(
        "two-tower retrieval",
        "retrieval/two_tower_train",
        settings={"num_embeddings": 100_000, "batch_size": 512},  # what a planner assumes
        absent=("faiss",),
    ),
    _example(
        "BERT4Rec",
        "bert4rec/bert4rec_main",
        "main",
        settings={
            "argv": [
                "--dataset_name=random", "--random_user_count=200", "--random_item_count=20000",
                "--random_size=40000", "--max_len=16", "--emb_dim=64", "--train_batch_size=32",
                "--val_batch_size=32", "--num_epochs=1",
            ],
        },
        packages=("pandas",),
        replaced={"EmbOptimType": "bench.clients.watched:SgdForAdam"},
    ),
    _configured("DeepFM as it is", "deepfm_criteo"),
    _configured("DeepFM", "deepfm_criteo", one_optimizer=True),
    _configured("MMoE", "mmoe_taobao", one_optimizer=True),
    _configured("DIN", "multi_tower_din_taobao", one_optimizer=True),
    _configured("DBMTL of sequences", "dbmtl_taobao_seq", one_optimizer=True),
)  # fmt: skip
