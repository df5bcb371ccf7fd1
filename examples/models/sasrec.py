"""A transformer over histories, after SASRec (Kang and McAuley, arXiv 1808.09781)."""

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

WIDTH, HEADS, LAYERS, LONGEST = 128, 4, 2, 200
ITEMS = 20_000_000


class Layer(nn.Module):
    """Causal attention, then a layer of its own for every position."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.heads, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return as many vectors as there are inputs."""
        samples, longest, _ = inputs.shape
        heads = self.heads(self.before_attention(inputs))
        query, key, value = heads.view(samples, longest, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        inputs = inputs + self.out(attended.transpose(1, 2).flatten(2))
        return inputs + self.mlp(self.before_mlp(inputs))


class SasRec(nn.Module):
    """Predicts each item of a history from those before it, against a random other one."""

    def __init__(self) -> None:
        super().__init__()
        config = EmbeddingConfig(
            name="item", num_embeddings=ITEMS, embedding_dim=WIDTH,
            feature_names=["history", "other"],
        )  # fmt: skip
        self.items = EmbeddingCollection(tables=[config], device=torch.device("meta"))
        self.positions = nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, sparse: KeyedJaggedTensor) -> torch.Tensor:
        """Return the loss of a batch of histories, and as long ones of other items."""
        embedded = self.items(sparse)
        history = embedded["history"]
        longest = int(history.lengths().max())
        padded = history.to_padded_dense(longest)
        place = torch.arange(longest, device=padded.device)
        outputs = self.norm(self.layers(padded + self.positions(place)))
        others = embedded["other"].to_padded_dense(longest)
        right = (outputs[:, :-1] * padded[:, 1:]).sum(-1)
        wrong = (outputs[:, :-1] * others[:, 1:]).sum(-1)
        told = place[1:] < history.lengths().unsqueeze(1)
        losses = nn.functional.softplus(wrong - right) * told
        return losses.sum() / told.sum().clamp(min=1)


def make_model() -> nn.Module:
    """Return the model."""
    return SasRec()
