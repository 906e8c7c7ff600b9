"""GPT-2 (modeling_gpt2.py): learned positions, LayerNorm, Conv1D, dropout everywhere.

With ``gelu_new``, written op by op in Python, the MLP keeps five tensors of its width, with
``gelu`` two. Eager attention takes its softmax in the activations' dtype.
"""

from __future__ import annotations

from simulator.model.builder import GraphBuilder
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families.hf.attention import attend
from simulator.model.families.hf.masks import lend_mask
from simulator.model.families.hf.skeleton import Family, Started, register
from simulator.model.ops.activations import activate
from simulator.model.ops.elementwise import add
from simulator.model.ops.embedding import embedding, position_embedding
from simulator.model.ops.hf_attention import Eager
from simulator.model.ops.linear import conv1d
from simulator.model.ops.norm import layer_norm
from simulator.model.ops.plain import position_ids
from simulator.model.ops.pointwise import add_rows, dropout
from simulator.model.ops.views import copied_view, split


def hf_gpt2(config: ModelConfig, shape: Shape) -> Decoder:
    """The graphs of one GPT-2 for one micro-batch."""
    return Family(
        start=_start,
        block=_block,
        norm=lambda b, x: layer_norm(b, x, "ln_f"),
        buffers=lambda _: (),
        base="transformer",
        embedding="wte",
        blocks="h",
        last_norm="ln_f",
        not_passed=frozenset({"wte.out", "position_ids", "wpe.out"}),
    )(config, shape)


def _start(b: GraphBuilder, config: ModelConfig, shape: Shape) -> Started:
    rows = embedding(b, shape.batch, shape.seq, config.vocab, config.hidden, "wte")
    ids = position_ids(b, shape.seq)
    places = position_embedding(b, ids, config.positions, config.hidden, "wpe")
    hidden = add_rows(b, rows, places, "embed.sum")
    masks = lend_mask(b, config, shape, sliding=False)
    dropped = dropout(b, hidden, "embed.dropout", config.embedding_dropout)
    return Started(hidden=dropped, held=(rows, ids, places, *masks))


def _block(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int) -> int:
    _register_in_order(b, config)
    with b.frame() as frame:
        normed = layer_norm(b, x, "ln_1")
        with b.frame(normed):
            mixed = _attention(b, config, shape, normed)
            x1 = add(b, mixed, x, "attention.residual")
        b.module = "layers.*.mlp"
        normed = layer_norm(b, x1, "ln_2")
        mapped = _mlp(b, config, normed)
        frame.bind(mixed, x1, normed, mapped)
        return add(b, x1, mapped, "mlp.residual")


def _attention(b: GraphBuilder, config: ModelConfig, shape: Shape, x: int) -> int:
    """One product split in three; k's gradient of eager attention lies so that it needs no copy."""
    hidden, batch, seq = config.hidden, shape.batch, shape.seq
    heads = (batch, seq, config.heads, config.head_dim)
    with b.frame(x) as frame:
        both = conv1d(b, x, "attn.c_attn", 3 * hidden)
        part = (batch, seq, hidden)
        q, k, v = split(b, both, "qkv", {"q.part": part, "k.part": part, "v.part": part})
        k = b.view(k, "k.heads", heads)
        if config.attention == "eager":
            v = copied_view(b, v, "v.heads", heads)
            q = copied_view(b, q, "q.heads", heads)
        else:
            v, q = b.view(v, "v.heads", heads), b.view(q, "q.heads", heads)
        eager = Eager(wide_softmax=False, dropout=config.attention_dropout, sliced="qkv")
        out = attend(b, config, shape, (q, k, v), eager=eager)
        frame.bind(both, out)
        out = conv1d(b, out, "attn.c_proj", hidden)
        return dropout(b, out, "attn.resid_dropout", config.dropout)


def _mlp(b: GraphBuilder, config: ModelConfig, x: int) -> int:
    with b.part("mlp"), b.frame(x):
        wide = conv1d(b, x, "mlp.c_fc", config.ffn)
        active = activate(b, wide, config.activation)
        out = conv1d(b, active, "mlp.c_proj", config.hidden)
        return dropout(b, out, "mlp.dropout", config.dropout)


def _register_in_order(b: GraphBuilder, config: ModelConfig) -> None:
    hidden, ffn = config.hidden, config.ffn
    rows = (
        ("attention", "ln_1", (hidden,)),
        ("attention", "attn.c_attn", (hidden, 3 * hidden)),
        ("attention", "attn.c_proj", (hidden, hidden)),
        ("mlp", "ln_2", (hidden,)),
        ("mlp", "mlp.c_fc", (hidden, ffn)),
        ("mlp", "mlp.c_proj", (ffn, hidden)),
    )
    register(b, rows, bias_of=slice(-1, None))
