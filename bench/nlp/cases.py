"""What is predicted: three models at several batch sizes, and what runs on each rank."""

from collections.abc import Mapping
from typing import Any

from bench.nlp.models import Case, timed_steps, traced_step

_STEPS = 10
_SIZES: Mapping[str, tuple[int, tuple[int, ...]]] = {
    "bert": (64, (2, 6, 12)),
    "gpt2": (128, (1, 3, 6)),
    "xlnet": (64, (2, 6, 12)),
}
"""Sequence length and local batch sizes. The logits stay below 32 MiB: glibc gets larger tensors
from the kernel page by page every time, which no calibrated operator does."""
_VARIANTS = (("bert", 6, "fused"), ("gpt2", 3, "foreach"))


def cases() -> list[Case]:
    """Return what is predicted."""

    def case(model: str, batch: int, optimizer: str = "for-loop") -> Case:
        return Case(
            model=model,
            hidden_size=256,
            num_layers=2,
            num_heads=4,
            vocabulary=8192,
            sequence_length=_SIZES[model][0],
            local_batch_size=batch,
            optimizer=optimizer,
        )

    plain = [case(model, batch) for model, (_, batches) in _SIZES.items() for batch in batches]
    return plain + [case(*variant) for variant in _VARIANTS]


def trace_all(rank: int, folder: str) -> None:
    """Trace a step of every case on one rank."""
    for case in cases():
        traced_step(rank, case, folder)


def time_all(rank: int) -> dict[str, Any]:
    """Time steps of every case on one rank."""
    return {case.name: timed_steps(rank, case, num_steps=_STEPS) for case in cases()}
