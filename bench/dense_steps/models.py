"""The models that are timed: those of ``examples/models``, and configurations of TorchEasyRec."""

from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward as apply_in_backward
from torchrec.modules.embedding_configs import EmbeddingBagConfig
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedModel:
    """A model to be trained, its tables' optimizer in the backward, and its batches."""

    model: nn.Module
    samples: int
    batches: Sequence[Any]
    """What forward takes; they take turns."""


def timed_model(name: str, rank: int) -> TimedModel:
    """Return a model: of ``examples/models``, a language model, or ``CHECKOUT:CONFIGURATION``."""
    torch.manual_seed(SEED)
    if name in EXAMPLES:
        return _example(name, rank)
    if name in LANGUAGE_MODELS:
        return _language_model(LANGUAGE_MODELS[name], rank)
    checkout, _, configuration = name.partition(":")
    return _configured(Path(checkout).resolve(), configuration, rank)


class LanguageModel(NamedTuple):
    """A model of Hugging Face's with random weights, and its batch."""

    configuration: str
    """Class of ``transformers``."""
    model: str
    settings: Mapping[str, int]
    samples: int
    length: int
    """Ids of a sequence."""


LANGUAGE_MODELS: Mapping[str, LanguageModel] = {
    "bert": LanguageModel(
        "BertConfig", "BertForMaskedLM",
        {
            "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
            "intermediate_size": 1024, "vocab_size": 8000,
        },
        8, 128,
    ),
    "gpt2": LanguageModel(
        "GPT2Config", "GPT2LMHeadModel",
        {
            "n_embd": 384, "n_layer": 3, "n_head": 6, "vocab_size": 6000, "bos_token_id": 0,
            "eos_token_id": 0,
        },
        16, 64,
    ),
    "xlnet": LanguageModel(
        "XLNetConfig", "XLNetLMHeadModel",
        {"d_model": 192, "n_layer": 6, "n_head": 6, "d_inner": 768, "vocab_size": 5000},
        8, 96,
    ),
}  # fmt: skip


class WithTable(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A language model, and a table of next to nothing: plans are of tables."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        config = EmbeddingBagConfig(
            name="t", num_embeddings=100, embedding_dim=4, feature_names=["f"]
        )
        self.tables = EmbeddingBagCollection(tables=[config], device=torch.device("meta"))

    def forward(self, ids: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        """Return the loss of predicting each id, and the mean of what the table gives."""
        loss: torch.Tensor = self.model(input_ids=ids, labels=ids).loss
        return loss + self.tables(sparse).values().mean()


def _language_model(told: LanguageModel, rank: int) -> TimedModel:
    theirs: Any = import_module("transformers")
    configuration = getattr(theirs, told.configuration)(**told.settings)
    model = WithTable(getattr(theirs, told.model)(configuration))
    apply_in_backward(RowWiseAdagrad, list(model.tables.parameters()), OPTIMIZER)
    batches = []
    for seed in range(BATCHES * rank, BATCHES * (rank + 1)):
        drawn = torch.Generator().manual_seed(seed)
        most = told.settings["vocab_size"]
        ids = torch.randint(0, most, (told.samples, told.length), generator=drawn)
        rows = torch.randint(0, 100, (told.samples,), generator=drawn)
        lengths = torch.ones(told.samples, dtype=torch.int32)
        sparse = KeyedJaggedTensor(keys=["f"], values=rows, lengths=lengths)
        batches.append((ids, sparse))
    return TimedModel(model=model, samples=told.samples, batches=batches)


def _example(name: str, rank: int) -> TimedModel:
    sasrec: Any = import_module("examples.models.sasrec")
    tables.ROWS.update({each: min(rows, MOST_ROWS) for each, rows in tables.ROWS.items()})
    sasrec.ITEMS = MOST_ROWS
    model: nn.Module = import_module(f"examples.models.{name}").make_model()
    found = (each for each in model.modules() if isinstance(each, COLLECTIONS))
    rows = [parameter for each in found for parameter in each.parameters()]
    apply_in_backward(RowWiseAdagrad, rows, OPTIMIZER)
    is_sequence = name == "sasrec"
    samples = OF_SEQUENCES if is_sequence else SAMPLES
    make = _histories if is_sequence else _plain
    batches = [make(samples, BATCHES * rank + each) for each in range(BATCHES)]
    return TimedModel(model=model, samples=samples, batches=batches)


def _plain(samples: int, seed: int) -> tuple[Any, ...]:
    """Return dense numbers, an id of each feature, and labels."""
    drawn = torch.Generator().manual_seed(seed)
    ids = [torch.randint(0, n, (samples,), generator=drawn) for n in tables.ROWS.values()]
    lengths = torch.ones(samples * len(ids), dtype=torch.int32)
    sparse = KeyedJaggedTensor(keys=list(tables.ROWS), values=torch.cat(ids), lengths=lengths)
    labels = torch.randint(0, 2, (samples,), generator=drawn).float()
    return torch.rand(samples, tables.NUM_DENSE, generator=drawn), sparse, labels


def _histories(samples: int, seed: int) -> tuple[Any, ...]:
    """Return histories, and others as long."""
    drawn, each = torch.Generator().manual_seed(seed), _lengths(samples, seed)
    ids = torch.randint(0, MOST_ROWS, (2 * int(each.sum()),), generator=drawn)
    keys = ["history", "other"]
    return (KeyedJaggedTensor(keys=keys, values=ids, lengths=each.repeat(2)),)


def _lengths(samples: int, seed: int) -> torch.Tensor:
    """Return lengths of histories, the same longest one in every batch."""
    draw = Random(seed)  # noqa: S311 - the same every time
    found = [draw.randrange(5, LONGEST) for _ in range(samples)]
    return torch.tensor([LONGEST, *found[1:]], dtype=torch.int32)


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
