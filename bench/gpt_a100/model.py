"""A GPT as Megatron-LM trains it, split over the ranks of tensor parallelism.

References
----------
Shoeybi et al., Megatron-LM (2019), section 3: columns of the first product of attention and of the
MLP, rows of the second, and the vocabulary are split; all-reduces after the second product, and in
the backward at the first one's input; of the loss, each sample's largest logit, its own, and sums.

"""

from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, VOCABULARY, SEQUENCE, DROPOUT = 1024, 16, 51_200, 1024, 0.1


def _summed(values: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(values)
    return values


class _Summed(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """Adds up what ranks have, and hands the gradient on."""

    @staticmethod
    def forward(_: Any, part: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - torch's context
        return _summed(part)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - as above
        return gradient


class _Shared(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """Hands on what all ranks have, and adds up the gradients."""

    @staticmethod
    def forward(_: Any, values: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - as above
        return values.view_as(values)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - as above
        return _summed(gradient.contiguous())


class _SplitLoss(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """Cross entropy of logits whose columns ranks share."""

    @staticmethod
    def forward(context: Any, logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - as above
        largest = logits.amax(-1)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        logits = logits.sub_(largest[:, None])
        elsewhere, place = _own_ids(ids, logits.shape[-1])
        each = torch.arange(len(ids), device=ids.device)
        told = _summed(logits[each, place].masked_fill_(elsewhere, 0.0))
        shares = logits.exp_()
        total = _summed(shares.sum(-1))
        context.save_for_backward(shares.div_(total[:, None]), elsewhere, place)
        return total.log() - told

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ANN401 - as above
        shares, elsewhere, place = context.saved_tensors
        each = torch.arange(len(place), device=place.device)
        shares[each, place] -= 1.0 - elsewhere.float()
        return shares.mul_(gradient[:, None]), None


def _own_ids(ids: torch.Tensor, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which ids are other ranks', and all ids as those of the first rank's rows."""
    elsewhere = (ids < 0) | (ids >= number)
    return elsewhere, (ids - 0).masked_fill_(elsewhere, 0)


class GptLayer(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Attention and MLP of a GPT; the causal mask is inside the softmax, as Megatron's is."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.ranks, own = ranks, WIDTH // ranks
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.heads, self.out = nn.Linear(WIDTH, 3 * own), nn.Linear(own, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * own), nn.Linear(4 * own, WIDTH)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return as many vectors as there are inputs."""
        attended = self.sum_of(self.out, self.attend(self.shared(self.first(inputs))))
        inputs = inputs + nn.functional.dropout(attended, DROPOUT)
        inside = nn.functional.gelu(self.up(self.shared(self.second(inputs))))
        return inputs + nn.functional.dropout(self.sum_of(self.down, inside), DROPOUT)

    def attend(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what a rank's heads see."""
        samples, length, _ = inputs.shape
        own, heads = WIDTH // HEADS, HEADS // self.ranks
        joined = self.heads(inputs).view(samples, length, heads, 3 * own)
        query, key, value = (
            each.reshape(samples * heads, length, own)
            for each in joined.transpose(1, 2).chunk(3, -1)
        )
        none = query.new_empty(1, 1, 1)
        scores = torch.baddbmm(none, query, key.transpose(1, 2), beta=0, alpha=own**-0.5)
        shares = nn.functional.dropout(torch.softmax(scores, -1), DROPOUT)
        seen = torch.bmm(shares, value).view(samples, heads, length, own).transpose(1, 2)
        return seen.reshape(samples, length, heads * own)

    def shared(self, values: torch.Tensor) -> torch.Tensor:
        """Return what all ranks have, whose gradients are added up."""
        return values if self.ranks == 1 else _Shared.apply(values)

    def sum_of(self, layer: nn.Linear, values: torch.Tensor) -> torch.Tensor:
        """Return a layer of inputs that ranks share, with the bias once."""
        if self.ranks == 1:
            return layer(values)
        return _Summed.apply(nn.functional.linear(values, layer.weight)) + layer.bias


class Gpt(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A rank's part of a GPT whose layers are computed again in the backward."""

    def __init__(self, depth: int, ranks: int) -> None:
        super().__init__()
        self.ranks = ranks
        self.words = nn.Embedding(VOCABULARY // ranks, WIDTH)
        self.places = nn.Embedding(SEQUENCE, WIDTH)
        self.layers = nn.ModuleList(GptLayer(ranks) for _ in range(depth))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the loss of predicting each id."""
        values = nn.functional.dropout(self.embedded(ids) + self.places.weight, DROPOUT)
        for layer in self.layers:
            values = checkpoint(layer, values, use_reentrant=False)
        normal, ids = self.norm(values), ids.flatten()
        if self.ranks > 1:
            normal = _Shared.apply(normal)
        logits = nn.functional.linear(normal, self.words.weight).float().flatten(0, 1)
        if self.ranks > 1:
            return _SplitLoss.apply(logits, ids).mean()
        return nn.functional.cross_entropy(logits, ids)

    def embedded(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the words' vectors; those of other ranks' words are added."""
        if self.ranks == 1:
            return self.words(ids)
        elsewhere, ids = _own_ids(ids, len(self.words.weight))
        return _Summed.apply(self.words(ids).masked_fill(elsewhere[..., None], 0.0))
