"""The models that are timed: those of ``examples/models``, and configurations of TorchEasyRec."""

from collections.abc import Sequence
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward as apply_in_backward
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from bench.clients import tzrec
from bench.clients.absent import stand_in_for
from bench.clients.client import CONFIGURATION, TZREC_ABSENT
from bench.dense_reading.reading import EXAMPLES
from bench.kept import SEED
from examples.models import tables

MOST_ROWS = 100_000
"""Rows of a table: two ranks hold them, and caches do not."""
SAMPLES, OF_SEQUENCES = 1024, 128
"""Samples of a rank's batch, and those where they are histories."""
LONGEST = 50
BATCHES = 3
OPTIMIZER = {"lr": 1e-3}
"""Tables have row-wise Adagrad, which the calibration measures all lookups with."""
COLLECTIONS = (EmbeddingBagCollection, EmbeddingCollection)
_sasrec: Any = import_module("examples.models.sasrec")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedModel:
    """A model to be trained, its tables' optimizer in the backward, and its batches."""

    model: nn.Module
    samples: int
    batches: Sequence[Any]
    """What forward takes; they take turns."""


def timed_model(name: str, rank: int) -> TimedModel:
    """Return a model: of ``examples/models``, or ``CHECKOUT:CONFIGURATION``."""
    if name in EXAMPLES:
        return _example(name, rank)
    torch.manual_seed(SEED)
    checkout, _, configuration = name.partition(":")
    return _configured(Path(checkout).resolve(), configuration, rank)


def example_model(name: str, most_rows: int) -> nn.Module:
    """Return a model of ``examples/models`` whose tables have so many rows at most."""
    torch.manual_seed(SEED)
    _sasrec.ITEMS = most_rows
    tables.ROWS.update({each: min(rows, most_rows) for each, rows in tables.ROWS.items()})
    model: nn.Module = import_module(f"examples.models.{name}").make_model()
    return model


def table_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the weights of a model's tables."""
    found = (each for each in model.modules() if isinstance(each, COLLECTIONS))
    return [parameter for each in found for parameter in each.parameters()]


def example_batch(name: str, samples: int, seed: int, longest: int = LONGEST) -> tuple[Any, ...]:
    """Return what a model of ``examples/models`` takes, with ids of the rows that it has now.

    That is dense numbers, an id of each feature, and labels; of SASRec histories, and others as
    long.
    """
    drawn = torch.Generator().manual_seed(seed)
    if name == "sasrec":
        each = _lengths(samples, seed, longest)
        ids = torch.randint(0, _sasrec.ITEMS, (2 * int(each.sum()),), generator=drawn)
        keys = ["history", "other"]
        return (KeyedJaggedTensor(keys=keys, values=ids, lengths=each.repeat(2)),)
    rows = [torch.randint(0, n, (samples,), generator=drawn) for n in tables.ROWS.values()]
    lengths = torch.ones(samples * len(rows), dtype=torch.int32)
    sparse = KeyedJaggedTensor(keys=list(tables.ROWS), values=torch.cat(rows), lengths=lengths)
    labels = torch.randint(0, 2, (samples,), generator=drawn).float()
    return torch.rand(samples, tables.NUM_DENSE, generator=drawn), sparse, labels


def _example(name: str, rank: int) -> TimedModel:
    model = example_model(name, MOST_ROWS)
    apply_in_backward(RowWiseAdagrad, table_parameters(model), OPTIMIZER)
    samples = OF_SEQUENCES if name == "sasrec" else SAMPLES
    batches = [example_batch(name, samples, BATCHES * rank + each) for each in range(BATCHES)]
    return TimedModel(model=model, samples=samples, batches=batches)


def _lengths(samples: int, seed: int, longest: int = LONGEST) -> torch.Tensor:
    """Return lengths of histories, the same longest one in every batch."""
    draw = Random(seed)  # noqa: S311 - the same every time
    found = [draw.randrange(5, longest) for _ in range(samples)]
    return torch.tensor([longest, *found[1:]], dtype=torch.int32)


def _configured(checkout: Path, name: str, rank: int) -> TimedModel:
    """Return a configuration of TorchEasyRec's, its tables cut."""
    from bench.clients.planned import built

    stand_in_for(TZREC_ABSENT)
    tzrec.generate_protocol(checkout)
    theirs = tzrec.import_main(checkout)
    loaded = theirs.config_util.load_pipeline_config

    def cut(path: str) -> Any:  # noqa: ANN401 - theirs
        config = loaded(path)
        tzrec.limit_rows(config, MOST_ROWS)
        return config

    theirs.config_util.load_pipeline_config = cut
    with chdir(checkout):
        config, model = built(Path("examples", f"{name}{CONFIGURATION}"))
    theirs.config_util.load_pipeline_config = loaded
    features = theirs._create_features(list(config.feature_configs), config.data_config)  # noqa: SLF001
    has_sequences = any(each.is_sequence for each in features)
    samples = OF_SEQUENCES if has_sequences else SAMPLES
    make = partial(tzrec.made_batch, config.data_config, features, samples)
    with chdir(checkout):
        batches = [
            make(seed=seed, lengths=partial(_lengths, seed=seed))
            for seed in range(BATCHES * rank, BATCHES * (rank + 1))
        ]
    return TimedModel(model=model, samples=samples, batches=batches)
