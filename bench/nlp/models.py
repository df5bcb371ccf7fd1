"""The models, with random weights, and one training step of them."""

import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bench.nlp.shorten import shortened

_UNTRAINED = ("mask_emb", "r_s_bias", "seg_embed")
"""Parameters of XLNet that a plain language model does not use; DDP wants every gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model at one size."""

    model: str
    hidden_size: int
    num_layers: int
    num_heads: int
    vocabulary: int
    sequence_length: int
    local_batch_size: int
    optimizer: str = "for-loop"
    """How AdamW goes over the parameters: ``for-loop``, ``foreach`` or ``fused``."""

    @property
    def name(self) -> str:
        """Return a name for tables and files."""
        kind = "" if self.optimizer == "for-loop" else f"-{self.optimizer}"
        sizes = f"h{self.hidden_size}-l{self.num_layers}-s{self.sequence_length}"
        return f"{self.model}-{sizes}-b{self.local_batch_size}{kind}"

    def data(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def build(case: Case) -> torch.nn.Module:
    """Return a model of Hugging Face transformers with random weights, in training mode."""
    import transformers

    transformers.logging.set_verbosity_error()
    model = _BUILDERS[case.model](transformers, case)
    for name, parameter in model.named_parameters():
        if name.endswith(_UNTRAINED):
            parameter.requires_grad_(requires_grad=False)
    model.train()
    return model


def _bert(transformers: ModuleType, case: Case) -> torch.nn.Module:
    return transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=case.vocabulary,
            hidden_size=case.hidden_size,
            num_hidden_layers=case.num_layers,
            num_attention_heads=case.num_heads,
            intermediate_size=4 * case.hidden_size,
            max_position_embeddings=case.sequence_length,
            attn_implementation="eager",
        )
    )


def _gpt2(transformers: ModuleType, case: Case) -> torch.nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=case.vocabulary,
            n_embd=case.hidden_size,
            n_layer=case.num_layers,
            n_head=case.num_heads,
            n_positions=case.sequence_length,
            bos_token_id=0,
            eos_token_id=0,
            attn_implementation="eager",
            use_cache=False,
        )
    )


def _xlnet(transformers: ModuleType, case: Case) -> torch.nn.Module:
    return transformers.XLNetLMHeadModel(
        transformers.XLNetConfig(
            vocab_size=case.vocabulary,
            d_model=case.hidden_size,
            n_layer=case.num_layers,
            n_head=case.num_heads,
            d_inner=4 * case.hidden_size,
            use_mems_train=False,
            use_mems_eval=False,
        )
    )


_BUILDERS: Mapping[str, Callable[[ModuleType, Case], torch.nn.Module]] = {
    "bert": _bert,
    "gpt2": _gpt2,
    "xlnet": _xlnet,
}


def training_step(case: Case) -> Callable[[], None]:
    """Return a function that runs one step on this rank."""
    model = DistributedDataParallel(build(case))
    flags = {"foreach": case.optimizer == "foreach", "fused": case.optimizer == "fused"}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **flags)
    ids = torch.randint(0, case.vocabulary, (case.local_batch_size, case.sequence_length))

    def step() -> None:
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()

    return step


def timed_steps(rank: int, case: Case, *, num_steps: int) -> dict[str, Any]:
    """Return wall and CPU seconds of every step of this rank."""
    del rank
    step = training_step(case)
    for _ in range(3):
        step()
    wall, cpu = [], []
    for _ in range(num_steps):
        dist.barrier()
        begin, begin_cpu = time.perf_counter(), time.process_time()
        step()
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
    return {"wall_s": wall, "cpu_s": cpu}


def traced_step(rank: int, case: Case, folder: str) -> str:
    """Write the execution trace of one step of this rank, and return its path."""
    step = training_step(case)
    for _ in range(3):
        step()
    path = Path(folder) / f"{case.name}-rank{rank}.json"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        observer = torch.profiler.ExecutionTraceObserver()
        observer.register_callback(str(path))
        observer.start()
        step()
        observer.stop()
        observer.unregister_callback()
    document = shortened(json.loads(path.read_text(encoding="utf-8")))
    path.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")
    return str(path)
