"""A case: one training configuration. Its fields are the keys of ``config`` in a recording."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias

Scalar: TypeAlias = str | int | float | bool | None
SINCE = (
    "framework",
    "options",
    "in_backward",
    "lora",
    "rank",
    "lora_dropout",
    "lora_dtype",
    "dora",
    "wide_norms",
    "trains",
    "freeze",
    "fp8",
    "loss_scaling",
    "loss",
    "mask",
)
"""Fields that a recording names only where they are not as usual: older recordings lack them."""

STEPS = 2
"""Steps of a recording: states are born in the first, the second is as all that follow."""
PURE_BF16: dict[str, Any] = {"master": "bf16", "param_dtype": None, "reduce_dtype": None}
"""Stored, computed and reduced in bf16."""
AS_STORED: dict[str, Any] = {"param_dtype": None, "reduce_dtype": None}
"""No mixed precision of FSDP's: fp32 throughout, or autocast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is trained, and how.

    ``model``: ``titan:NAME`` or ``hf:NAME``, of ``recorder.models``. ``ws``: ranks; ``hsdp``: how
    many replicas they make. ``mb``: sequences of ``seq`` tokens a rank and micro-step.
    ``ac``: ``none``, ``full``, ``selective_op``, ``selective_N`` (every N-th block),
    ``part_core_attn+mlp+layernorm`` (parts of each block) or ``save_mm,silu/2`` (operators whose
    results are kept, the latter's every second), with ``_noearly`` to recompute to the end and
    then ``_offload`` to keep a block's arguments on the host; or ``_reentrant``.
    ``reshard`` is ``reshard_after_forward``; dtypes are ``bf16``, ``fp16``, ``fp32`` or None for
    "as stored", ``master`` being the stored one. ``wrap``: see ``recorder.frameworks.fsdp2``.
    ``opt``: a name of ``recorder.optimizers``, None to step none; ``in_backward`` steps each
    parameter in a hook.
    ``framework``: a name of ``recorder.frameworks``; ``options`` are its own. ``lora``: names of
    linears with adapters, by commas, or ``all-linear``; ``lora_dtype`` None is the base's;
    ``dora``: with magnitudes; ``wide_norms``: norms in fp32; beside adapters the parts ``trains``
    are trained; without, all but the parts ``freeze``. Parts are
    ``embed``, ``layers``, ``norm`` and ``head``, to freeze also ``layers.7``. ``fp8``:
    torchao's float8 linears in the blocks, ``tensorwise``, ``rowwise`` (of compiled blocks), or
    ``all_gather`` to gather them so too.
    ``loss_scaling``: a ``torch.amp.GradScaler`` scales the loss.
    ``loss``: a name of ``recorder.losses``, with the number of chunks behind it.
    ``mask``: ``none``, or an ``attention_mask`` that comes with the batch, of ``ones`` or really
    ``padded``.
    """

    model: str = "titan:debug"
    ws: int = 8
    mb: int = 2
    seq: int = 512
    ac: str = "none"
    reshard: bool | int = True
    param_dtype: str | None = "bf16"
    reduce_dtype: str | None = "fp32"
    master: str = "fp32"
    wrap: str | tuple[str, ...] = "titan"
    opt: str | None = "adamw_fused"
    clip: bool = False
    fused_rms: bool = True
    gqa_native: bool = False
    n_layers: int | None = None
    grad_accum: int = 1
    ga_sync: bool = True
    reshard_after_backward: bool = True
    hsdp: int | None = None
    cpu_offload: bool = False
    prefetch_fwd: int = 0
    autocast: bool = False
    attn: str = "flash"
    framework: str = "fsdp2"
    options: tuple[tuple[str, Scalar], ...] = ()
    in_backward: bool = False
    lora: str | None = None
    rank: int = 16
    lora_dropout: float = 0.0
    lora_dtype: str | None = None
    dora: bool = False
    wide_norms: bool = False
    trains: tuple[str, ...] = ()
    freeze: tuple[str, ...] = ()
    fp8: str | None = None
    loss_scaling: bool = False
    loss: str = "eager"
    mask: str = "none"

    @property
    def config(self) -> dict[str, Any]:
        """The case as a recording names it."""
        found = {**asdict(self), "options": dict(self.options)}
        usual = {field.name: field.default for field in fields(self)}
        for name in SINCE:
            if getattr(self, name) == usual[name]:
                del found[name]
        if isinstance(self.wrap, tuple):
            found["wrap"] = list(self.wrap)
        return found

    @property
    def option(self) -> dict[str, Scalar]:
        """The framework's own options."""
        return dict(self.options)
