"""A decoder as torchtitan writes Llama: its operators, in its order, holding what it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from recorder.case import Case
from recorder.losses import Projection, titan_loss, whole
from recorder.models.built import Built
from recorder.models.titan_sizes import Size

EPSILON = 1e-5


class RmsNorm(nn.Module):
    """The fused kernel, or its composition, which older releases ran on CUDA too."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size.dim))
        self.fused = size.fused

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            return functional.rms_norm(x, self.weight.shape, self.weight, EPSILON)
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
        return ((wide * scale) * self.weight).to(x.dtype)


def rotate(query: Tensor, key: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Rotary embedding with complex numbers, in fp32: both turn before either is cast back.

    Source: torchtitan 0.3.0, torchtitan/models/common/rope.py, ``ComplexRoPE.apply_rotary_emb``.
    """
    complex_query = torch.view_as_complex(query.float().reshape(*query.shape[:-1], -1, 2))
    complex_key = torch.view_as_complex(key.float().reshape(*key.shape[:-1], -1, 2))
    angles = table[: query.shape[1]].view(1, query.shape[1], 1, -1)
    turned_query = torch.view_as_real(complex_query * angles).flatten(3)
    turned_key = torch.view_as_real(complex_key * angles).flatten(3)
    return turned_query.type_as(query), turned_key.type_as(key)


class Attention(nn.Module):
    """Grouped-query attention; keys and values are repeated first unless ``grouped``."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        query, grouped = size.heads * size.head_dim, size.kv_heads * size.head_dim
        self.wq = nn.Linear(size.dim, query, bias=False)
        self.wk = nn.Linear(size.dim, grouped, bias=False)
        self.wv = nn.Linear(size.dim, grouped, bias=False)
        self.wo = nn.Linear(query, size.dim, bias=False)
        self.around_core: Callable[..., Tensor] | None = None

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        heads = (batch, seq, -1, self.size.head_dim)
        query = self.wq(x).view(heads)
        key = self.wk(x).view(heads)
        value = self.wv(x).view(heads)
        query, key = rotate(query, key, table)
        if self.around_core is not None:
            mixed = self.around_core(self._core, query, key, value)
        else:
            if self.repeats:
                key = self._repeat(key)
                value = self._repeat(value)
            mixed = self._attend(query, key, value)
        return self.wo(mixed.transpose(1, 2).contiguous().view(batch, seq, -1))

    @property
    def repeats(self) -> bool:
        """Whether keys and values are copied to all heads."""
        return self.size.heads > self.size.kv_heads and not self.size.grouped

    def _core(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Core attention in a frame of its own, to be checkpointed."""
        if self.repeats:
            key = self._repeat(key)
            value = self._repeat(value)
        return self._attend(query, key, value)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )

    def _repeat(self, x: Tensor) -> Tensor:
        batch, seq, kv_heads, head_dim = x.shape
        times = self.size.heads // kv_heads
        wide = x[:, :, :, None, :].expand(batch, seq, kv_heads, times, head_dim)
        return wide.reshape(batch, seq, self.size.heads, head_dim)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.w1 = nn.Linear(size.dim, size.ffn, bias=False)
        self.w2 = nn.Linear(size.ffn, size.dim, bias=False)
        self.w3 = nn.Linear(size.dim, size.ffn, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """One layer."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention = Attention(size)
        self.feed_forward = FeedForward(size)
        self.attention_norm = RmsNorm(size)
        self.ffn_norm = RmsNorm(size)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        middle = x + self.attention(self.attention_norm(x), table)
        return middle + self.feed_forward(self.ffn_norm(middle))


class Titan(nn.Module):
    """The decoder; its rotary table is a buffer of so many positions as the case's tokens."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(size.vocab, size.dim)
        self.layers = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = RmsNorm(size)
        self.output = nn.Linear(size.dim, size.vocab, bias=False)
        table = torch.empty(size.seq, size.head_dim // 2, dtype=torch.complex64)
        self.register_buffer("freqs_cis", table, persistent=False)
        self.project: Projection = whole

    def forward(self, tokens: Tensor) -> Any:
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, self.freqs_cis)
        x = self.norm(x)
        return self.project(self.output, x)


def titan(size: Size, case: Case) -> Built:
    """Build a size for a case.

    Raises:
        ValueError: a mask.
    """
    if case.mask != "none":
        raise ValueError(f"torchtitan's modules take no mask, so mask={case.mask} says nothing")
    layers = case.n_layers or size.layers
    size = replace(size, layers=layers, seq=case.seq, fused=case.fused_rms, grouped=case.gqa_native)
    root = Titan(size)
    root.project, loss = titan_loss(case.loss)
    return Built(
        root=root,
        embedding=root.tok_embeddings,
        blocks=root.layers,
        head=[root.norm, root.output],
        loss=loss,
    )
