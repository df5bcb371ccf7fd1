"""The state of an optimizer that a sharder's fused parameters set is not counted as memory.

Only that of an optimizer set by ``apply_optimizer_in_backward`` is: with Adam, two thirds of what a
table takes are missing.
"""

from fbgemm_gpu.split_embedding_configs import EmbOptimType
from tables import bags, options
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.optim import Adam

MIB = 2**20


def megabytes(model, **fused_params) -> float:  # noqa: ANN001, ANN003 - a module
    """Return the HBM of the model's table, whole on one rank."""
    option = options(model, 2, **fused_params)["t0", "table_wise"]
    return option.total_storage.hbm / MIB


applied = bags(1_000_000)
_apply_optimizer_in_backward(Adam, applied.parameters(), {"lr": 0.1})
fused = megabytes(bags(1_000_000), optimizer=EmbOptimType.ADAM)
print(f"without an optimizer:              {megabytes(bags(1_000_000)):6.0f} MiB")
print(f"Adam by fused_params:              {fused:6.0f} MiB")
print(f"Adam by apply_optimizer_in_backward: {megabytes(applied):4.0f} MiB")
