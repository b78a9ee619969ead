"""The small model of bench_engine in PyTorch, trained as fast as it goes.

    torch_peer.py THREADS

Prints `tokens_per_s X`: the fastest of a dozen steps. 4 layers, width 256, 4 heads, 256 tokens, 8 samples, vocabulary
256, float32, AdamW, gradient clipping: the same work as Perdure's step.
"""
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, WIDTH, HEADS, CONTEXT, BATCH, VOCABULARY = 4, 256, 4, 256, 8, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("mask", torch.tril(torch.ones(CONTEXT, CONTEXT)) == 0, persistent=False)

    def attend(self, x):
        q, k, v = (
            part.view(BATCH, CONTEXT, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(x).split(WIDTH, dim=2)
        )
        scores = (q @ k.transpose(2, 3)) * (WIDTH // HEADS) ** -0.5
        weights = scores.masked_fill(self.mask, float("-inf")).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x, targets):
        h = self.tokens(x) + self.positions.weight
        for block in self.blocks:
            h = block(h)
        logits = self.norm(h) @ self.tokens.weight.t()
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def main():
    torch.set_num_threads(int(sys.argv[1]))
    torch.manual_seed(1)
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    x = torch.randint(VOCABULARY, (BATCH, CONTEXT))
    y = torch.randint(VOCABULARY, (BATCH, CONTEXT))
    best = float("inf")
    for step in range(15):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=False)
        model(x, y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step >= 3:
            best = min(best, time.perf_counter() - begin)
    print("tokens_per_s", BATCH * CONTEXT / best)


main()
