"""Trains configurations of TorchEasyRec with batches of made ids, by its own training function.

What it reads data with is closed; so its loader is replaced, and nothing else.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

SEQUENCE_LENGTH = 20
BATCHES = 3
"""Different ones, that take turns."""
ADAGRAD_EPS = 1e-8
"""What FBGEMM's Adagrad has, unless told otherwise (fbgemm_gpu 1.8.0)."""
_ROWS = {"num_buckets", "hash_bucket_size"}


def generate_protocol(source: Path) -> None:
    """Generate the modules of its protocol buffers, as its ``scripts/gen_proto.sh`` does."""
    if any(source.glob("tzrec/protos/*_pb2.py")):
        return
    files = [str(path.relative_to(source)) for path in source.glob("tzrec/protos/**/*.proto")]
    compiler = [sys.executable, "-m", "grpc_tools.protoc", "-I", ".", "--python_out", "."]
    subprocess.run([*compiler, *files], cwd=source, check=True)  # noqa: S603 - its own files


def import_main(source: Path) -> Any:  # noqa: ANN401 - a module of theirs
    """Return its main module, its log kept to errors."""
    import logging

    import torch.utils._triton as triton

    triton.has_triton_package = lambda: False  # a stand-in for it may be there
    sys.path.insert(0, str(source))
    os.environ["USE_FARM_HASH_TO_BUCKETIZE"] = "true"
    import tzrec.main

    logging.getLogger("tzrec").setLevel(logging.ERROR)
    return tzrec.main


def train(
    configuration: Path, *, local_batch_size: int, most_rows: int, one_optimizer: bool = False
) -> None:
    """Train a configuration, its tables and batch cut to what two ranks can hold.

    With one optimizer, all is trained by that of the tables, Adagrad: else a table that a plan
    replicates is trained by the dense one, and losses depend on the plan.
    """
    import tzrec.main
    from tzrec.utils import config_util

    edited = config_util.load_pipeline_config(str(configuration))
    limit_rows(edited, most_rows)
    edited.data_config.batch_size = local_batch_size
    if one_optimizer:
        dense = edited.train_config.dense_optimizer.adagrad_optimizer
        dense.lr, dense.eps = edited.train_config.sparse_optimizer.adagrad_optimizer.lr, ADAGRAD_EPS
    path = Path(f"edited_{os.environ['RANK']}.config").resolve()
    config_util.save_message(edited, str(path))
    tzrec.main.create_dataloader = partial(MadeLoader, samples=local_batch_size)
    tzrec.main.train_and_evaluate(
        str(path), train_input_path="made", model_dir=str(path.parent / "model")
    )


def limit_rows(message: Any, most: int) -> None:  # noqa: ANN401 - a protocol buffer
    """Let no table of a configuration have more rows than that."""
    for field, value in message.ListFields():
        if field.name in _ROWS:
            setattr(message, field.name, min(value, most))
        elif field.message_type is not None:
            repeated = isinstance(value, Sequence) or hasattr(value, "append")
            for each in value if repeated else (value,):
                if hasattr(each, "ListFields"):
                    limit_rows(each, most)


class MadeLoader:
    """Stands for its loader of data: a few batches of random ids, again and again."""

    def __init__(
        self,
        data_config: Any,  # noqa: ANN401 - theirs
        features: Sequence[Any],
        *_: object,
        samples: int,
        **__: object,
    ) -> None:
        self.dataset = SimpleNamespace(
            sampled_batch_size=samples + num_negatives(data_config),
            get_sampler_cluster=lambda: None,
        )
        self._make = partial(made_batch, data_config, features, samples)

    def get_iterator(self) -> Iterator[Any]:
        """Return an iterator that does not end; each rank has its own batches."""
        rank = int(os.environ["RANK"])
        return iter(cycle([self._make(seed=BATCHES * rank + i) for i in range(BATCHES)]))


def num_negatives(data_config: Any) -> int:  # noqa: ANN401 - theirs
    """Return how many negative samples a batch has."""
    kind = data_config.WhichOneof("sampler")
    return int(getattr(getattr(data_config, kind), "num_sample", 0)) if kind else 0


def _all_alike(samples: int) -> torch.Tensor:
    return torch.full((samples,), SEQUENCE_LENGTH, dtype=torch.int32)


def made_batch(
    data_config: Any,  # noqa: ANN401 - theirs
    features: Sequence[Any],
    samples: int,
    *,
    seed: int,
    lengths: Callable[[int], torch.Tensor] = _all_alike,
    candidates: int = 0,
) -> Any:  # noqa: ANN401 - theirs
    """Return a batch of random ids, dense values and labels, as its own parser makes it.

    Sequences of so many samples have the lengths that are told; with candidates those of
    candidates have so many ids, each with a label.
    """
    from tzrec.datasets.data_parser import DataParser
    from tzrec.datasets.utils import BASE_DATA_GROUP
    from tzrec.features.feature import FgMode

    drawn = torch.Generator().manual_seed(seed)
    columns: dict[str, torch.Tensor] = {}
    for feature in features:
        more = 0 if feature.data_group == BASE_DATA_GROUP else num_negatives(data_config)
        of_candidates = candidates and "cand" in (feature.sequence_name or feature.name)
        each = torch.full((samples,), candidates, dtype=torch.int32)
        columns |= _columns(feature, each if of_candidates else lengths(samples + more), drawn)
        feature.fg_mode = FgMode.FG_NONE  # it is made, not generated from raw data
    labels, weights = list(data_config.label_fields), list(data_config.sample_weight_fields)
    columns |= _labels(labels, samples, drawn, candidates)
    columns |= {weight: torch.rand(samples, generator=drawn) for weight in weights}
    return DataParser(features, labels, sample_weights=weights).to_batch(columns)


def _labels(
    names: Sequence[str], samples: int, drawn: torch.Generator, candidates: int
) -> dict[str, torch.Tensor]:
    """Return labels: one a sample, or one a candidate."""
    number = samples * (candidates or 1)
    made = {name: torch.randint(0, 2, (number,), generator=drawn) for name in names}
    if not candidates:
        return made
    each = torch.full((samples,), candidates, dtype=torch.int32)
    lengths = {f"{name}.lengths": each for name in names}
    return {f"{name}.values": values for name, values in made.items()} | lengths


def _columns(
    feature: Any,  # noqa: ANN401 - theirs
    lengths: torch.Tensor,
    drawn: torch.Generator,
) -> dict[str, torch.Tensor]:
    """Return a feature's columns: a value a sample, or a sequence of these lengths."""
    if not feature.is_sequence:
        lengths = torch.ones_like(lengths)
    name, ids = feature.name, int(lengths.sum())
    made = {}
    if feature.is_sparse:
        made["values"] = torch.randint(0, feature.num_embeddings, (ids,), generator=drawn)
    else:
        made["values"] = torch.rand(ids, feature.value_dim, generator=drawn)
    if feature.is_sparse or feature.is_sequence:
        made["lengths"] = lengths
    if feature.is_sequence and feature.is_sparse and feature.value_dim != 1:
        made["key_lengths"] = torch.ones(ids, dtype=torch.int32)
    if feature.is_sparse and not feature.is_sequence and feature.is_weighted:
        made["weights"] = torch.rand(ids, generator=drawn)
    return {f"{name}.{part}": values for part, values in made.items()}
