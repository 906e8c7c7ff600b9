"""The shape of a decoder-only transformer, and whose modules run it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Architecture of one model.

    ``style`` says whose modules run (``torchtitan``, ``torchtune`` or ``hf``, transformers'), hence
    what autograd keeps. torchtitan's: ``rms_norm`` is ``fused`` (aten::_fused_rms_norm, torch >=
    2.9 on CUDA) or ``composite``; ``kv_expand``: k and v are copied to all heads before attention
    (False: the kernel takes grouped heads natively).

    ``tied``: the head's weight is the embedding's. The rest is read by style ``hf``: ``attention``:
    ``sdpa``, ``flash_attention_2`` or ``eager``; ``activation``: one of
    ``ops.activations``; ``rotary_fraction``: the part of a head that is turned;
    ``positions``: rows of the learned position table, or of ALiBi's; ``window``: of sliding
    attention, None for none; ``dropout``: of the residual branches, ``embedding_dropout`` of what
    enters the first block, ``attention_dropout`` of the probabilities; ``qk_norm``: queries and
    keys are normalised.

    Mixtures of experts: a token is sent to ``experts_per_token`` of ``experts``, each a gated MLP
    of ``expert_ffn`` (0: of ``ffn``); ``norm_topk``: the weights of a token's experts are made to
    sum to 1; ``experts_implementation``: ``grouped_mm`` (all experts in one launch) or ``eager``
    (one by one); ``shared_ffn``: width of the MLP beside them that all tokens meet (0: none);
    ``dense_layers``: the first layers, which have one MLP of ``ffn``; ``expert_groups``: a token
    chooses among the experts of its ``topk_groups`` best groups (0: among all).

    Latent attention (``kv_rank`` > 0): ``q_rank``: of the queries' latent (0: none); of
    ``head_dim``, ``rope_head_dim`` are turned (``rope_pairs``: even and odd dims together);
    ``v_head_dim``: of values (0: ``head_dim``).
    """

    name: str
    family: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    head_dim: int
    style: str = "torchtitan"
    rms_norm: str = "fused"
    kv_expand: bool = True
    source: str = ""
    tied: bool = False
    attention: str = "sdpa"
    activation: str = "silu"
    qkv_bias: bool = False
    rotary_fraction: float = 1.0
    positions: int = 0
    window: int | None = None
    dropout: float = 0.0
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    qk_norm: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    norm_topk: bool = True
    experts_implementation: str = "grouped_mm"
    shared_ffn: int = 0
    dense_layers: int = 0
    expert_groups: int = 0
    topk_groups: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    rope_head_dim: int = 0
    rope_pairs: bool = False
    v_head_dim: int = 0

    @property
    def v_width(self) -> int:
        """Dims of a head's values."""
        return self.v_head_dim or self.head_dim

    @property
    def expert_width(self) -> int:
        """Intermediate width of one expert."""
        return self.expert_ffn or self.ffn
