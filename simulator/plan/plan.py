"""What the user decides: how the job is split over ranks and how it trains."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.dtypes import DType
from simulator.fine_tuning import FineTuning
from simulator.plan.versions import NEWEST_FSDP2, Fsdp2Rules
from simulator.plan.zero import NO_ZERO, Zero

FP8_GATHERED = "tensorwise-all-gather"
"""torchao's tensorwise float8 linears whose weights FSDP2 gathers in float8."""

FP8_ROWWISE = "rowwise"
"""torchao's float8 linears with a scale for each row, which are written of compiled blocks."""

FP8 = ("tensorwise", FP8_GATHERED, FP8_ROWWISE)
"""What ``Precision.fp8`` may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The dtype of each thing a parameter costs memory for.

    ``compute``: of the gathered copy that kernels read; ``reduce``: in which gradients are
    summed over ranks; ``gradients``: of the (sharded) gradient the optimizer reads; ``master``:
    of a copy beside the stored parameter (None: the stored one is the master); ``moments``: of
    the optimizer's states; ``autocast``: to which ``torch.autocast`` casts matrix products;
    ``fp8``: how torchao scales the blocks' float8 linears (None: there are none).
    ``loss_scaling``: a ``torch.amp.GradScaler`` scales the loss.
    """

    name: str
    parameters: DType
    compute: DType
    gradients: DType
    reduce: DType
    master: DType | None
    moments: DType
    autocast: DType | None = None
    fp8: str | None = None
    loss_scaling: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fsdp:
    """FSDP's knobs, by torch's names; the last three are FSDP1's.

    ``wrap``: a named wrapping or module patterns. ``reshard_after_forward``: an int keeps a slice
    of 1/int after forward and gathers over so many ranks in backward.
    """

    wrap: str | tuple[str, ...] = "torchtitan"
    reshard_after_forward: bool | int = True
    reshard_last_block: bool = True
    reshard_after_backward: bool = True
    sync_every_micro_batch: bool = True
    forward_prefetch: int = 0
    backward_prefetch: str = "pre"
    limit_all_gathers: bool = True
    use_orig_params: bool = True
    rules: Fsdp2Rules = NEWEST_FSDP2

    def reshards_to(self, shard: int) -> bool | int:
        """``reshard_after_forward`` over ``shard`` ranks: 1 is False, all of them is True.

        Source: torch/distributed/fsdp/_fully_shard/_fsdp_init.py, ``_get_post_forward_mesh_info``.
        """
        after = self.reshard_after_forward
        if isinstance(after, bool):
            return after
        if after == 1:
            return False
        return True if after == shard else after


BUCKET_CAP = 25 * 2**20
"""DDP's default, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ddp:
    """DDP's knobs, by torch's names; ``bucket_cap`` in bytes."""

    bucket_cap: int = BUCKET_CAP
    gradient_as_bucket_view: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Sizes of the mesh axes (all but dp_shard are 1 in this version) and the framework."""

    framework: str = "fsdp2"
    dp_replicate: int = 1
    dp_shard: int
    tp: int = 1
    cp: int = 1
    pp: int = 1
    ep: int = 1
    fsdp: Fsdp = Fsdp()
    ddp: Ddp = Ddp()
    zero: Zero = NO_ZERO

    @property
    def world_size(self) -> int:
        """Ranks in the job."""
        return self.dp_replicate * self.dp_shard * self.tp * self.cp * self.pp


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyper:
    """What of an optimizer's hyper-parameters changes what it holds.

    ``weight_decay``: None is the optimizer's own default; ``momentum``: SGD's;
    ``embeddings_32bit``: bitsandbytes is told to keep their states in 32 bits.
    """

    weight_decay: float | None = None
    momentum: float = 0.9
    amsgrad: bool = False
    embeddings_32bit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One training step. ``micro_batch`` is sequences a rank and micro-step.

    ``activation_checkpointing`` of the blocks: ``none``, ``full``, ``selective-op``,
    ``megatron-selective``, or ``every-N``: every N-th block in full. ``checkpoint_save``: operators
    whose results ``selective-op`` keeps (None: torchtitan's); ``checkpoint_modules``: parts of a
    block that ``megatron-selective`` checkpoints; ``checkpoint_offload``: a checkpointed block's
    input waits on the host; ``checkpoint_reentrant``: ``use_reentrant=True``, around what the
    framework wraps. ``loss_chunks``: into how many the sequence is cut, for losses that do.
    ``model_upcasts``: the model's own forward casts its logits to fp32.
    ``fused_linear_sums_apart``: Liger's loss makes each chunk's weight gradient apart.
    """

    seq_len: int
    micro_batch: int
    packing: str = "packed"
    grad_accum: int = 1
    precision: Precision
    optimizer: str = "adamw"
    optimizer_implementation: str = "foreach"
    optimizer_in_backward: bool = False
    hyper: Hyper = Hyper()
    clip_grad_norm: float | None = None
    activation_checkpointing: str = "none"
    early_stop: bool = True
    checkpoint_save: tuple[str, ...] | None = None
    checkpoint_modules: tuple[str, ...] = ("core_attn",)
    checkpoint_offload: bool = False
    checkpoint_reentrant: bool = False
    attention: str = "flash"
    compile: str = "none"
    loss: str = "eager"
    loss_chunks: int = 1
    model_upcasts: bool = False
    fused_linear_sums_apart: bool = False
    fine_tuning: FineTuning | None = None

    @property
    def trained_precision(self) -> Precision:
        """The precision of what is trained: adapters may have a dtype of their own."""
        adapters = self.fine_tuning.adapters if self.fine_tuning else None
        own = adapters.dtype if adapters else None
        if own is None:
            return self.precision
        return replace(
            self.precision, parameters=own, compute=own, gradients=own, reduce=own, moments=own
        )

    @property
    def stepped_precision(self) -> Precision:
        """What the optimizer is handed: a master copy, if there is one, and gradients like it."""
        precision, master = self.trained_precision, self.trained_precision.master
        return replace(precision, parameters=master, gradients=master) if master else precision

    @property
    def optimizer_choice(self) -> tuple[str, str]:
        """The optimizer's name and implementation."""
        return self.optimizer, self.optimizer_implementation

    @property
    def mask(self) -> str:
        """The ``attention_mask`` of a batch: ``none``, of ``ones``, or ``padded``.

        A micro-batch of one sequence is as long as its longest: ``padded`` pads nothing there.
        """
        if self.packing == "packed":
            return "none"
        return "ones" if self.packing == "padded" and self.micro_batch == 1 else "padded"

    @property
    def tokens(self) -> int:
        """Tokens a rank handles in one micro-step, padding included."""
        return self.seq_len * self.micro_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parallelism and training of one job."""

    parallelism: Parallelism
    training: Training
    offload_parameters: bool = False
