"""Warnings: what a scenario asks for that cannot change its answer, or that is left out of it."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.documents.node import Map, Scalar, find
from simulator.dtypes import DType
from simulator.fine_tuning import FineTuning
from simulator.lowering.lower import decoder_of
from simulator.lowering.optimizer import LEFT_OUT
from simulator.lowering.policy import parse_save
from simulator.model.config import ModelConfig
from simulator.plan.plan import Plan, Training
from simulator.plan.versions import Software
from simulator.scenario.frameworks import SETTINGS, rules_of
from simulator.scenario.releases import release_warnings
from simulator.scenario.zero import dead_of


def warnings_of(tree: Map, model: ModelConfig, plan: Plan, software: Software) -> tuple[str, ...]:
    """A warning for each setting that the rest of the scenario leaves without effect.

    Only what is written, and is not the default, is a setting. Beside them: what is asked for and
    simulated in part only.
    """
    found = (
        *_of_framework(plan, model),
        *_of_training(plan),
        *_of_optimizer(plan),
        *_of_model(model),
        *_of_software(),
    )
    dead = tuple(
        f"{key} has no effect{why}"
        for key, harmless, why in found
        if _asks(tree, tuple(key.split(".")), harmless)
    )
    dead = (
        *dead,
        *_never_called(model, plan),
        *release_warnings(model, plan, software),
        *_left_out(plan),
    )
    precision = plan.training.precision
    narrow = DType.FP16 in (precision.parameters, precision.compute, precision.reduce)
    scales = precision.loss_scaling or plan.parallelism.framework == "deepspeed"
    if narrow and not scales:
        return (*dead, "training.precision: fp16 needs a loss scaler; say loss_scaling: true")
    return dead


Dead = tuple[str, object, str]
"""A dotted key, its value that asks for nothing, and why any other has no effect."""


def _asks(tree: Map, path: tuple[str, ...], harmless: object) -> bool:
    node = find(tree, path)
    if node is None:
        return False
    return not isinstance(node, Scalar) or node.value != harmless


def _of_framework(plan: Plan, model: ModelConfig) -> Iterator[Dead]:
    """What a framework does not read, then what the rest leaves without effect of what it does."""
    framework = plan.parallelism.framework
    reads = rules_of(framework).reads
    for key, harmless in SETTINGS.items():
        if key not in reads:
            yield key, harmless, f" under {framework}"
    yield from (dead for dead in _of_fsdp(plan, model) if dead[0] in reads)
    if framework == "deepspeed":
        yield from dead_of(plan.parallelism.zero)


def _of_fsdp(plan: Plan, model: ModelConfig) -> Iterator[Dead]:
    fsdp, accumulates = plan.parallelism.fsdp, plan.training.grad_accum > 1
    if model.layers == 1 and plan.parallelism.framework == "fsdp2":
        yield "parallelism.fsdp.forward_prefetch", 0, ": there is no next block (layers: 1)"
    if not accumulates:
        why = ": there is one micro-batch a step (grad_accum: 1)"
        yield "parallelism.fsdp.sync_every_micro_batch", True, why
    if not accumulates or fsdp.sync_every_micro_batch:
        why = " but with grad_accum > 1 and sync_every_micro_batch: false"
        yield "parallelism.fsdp.reshard_after_backward", True, why
    if fsdp.wrap == "none" or isinstance(fsdp.wrap, tuple):
        yield from _of_unwrapped(plan)
    if fsdp.reshards_to(plan.parallelism.dp_shard) is False:
        why = f": no block is resharded (reshard_after_forward: {fsdp.reshard_after_forward})"
        yield "parallelism.fsdp.reshard_last_block", None, why


def _of_unwrapped(plan: Plan) -> Iterator[Dead]:
    wrap = plan.parallelism.fsdp.wrap
    if isinstance(wrap, tuple) and any("*" in pattern for pattern in wrap):
        return
    why = ": no block is wrapped (fsdp.wrap)"
    yield "parallelism.fsdp.reshard_last_block", None, why
    if wrap == "none" or plan.parallelism.framework == "fsdp2":
        yield "parallelism.fsdp.forward_prefetch", 0, why
    if wrap == "none":
        yield "parallelism.fsdp.backward_prefetch", "pre", why
        yield "parallelism.fsdp.limit_all_gathers", True, why
        why = ": FSDP's root is not resharded after forward, and it holds all (fsdp.wrap: none)"
        yield "parallelism.fsdp.reshard_after_forward", True, why


def _of_training(plan: Plan) -> Iterator[Dead]:
    yield from _of_checkpointing(plan.training)
    yield from _of_fine_tuning(plan.training.fine_tuning)
    if plan.offload_parameters:
        why = ": the optimizer runs on the host, which is not simulated (offload.parameters: host)"
        yield "training.optimizer.name", "adamw", why
        yield "training.optimizer.implementation", None, why
        yield "training.optimizer.in_backward", False, why
        yield "training.clip_grad_norm", None, why


def _of_checkpointing(training: Training) -> Iterator[Dead]:
    key, mode = "training.activation_checkpointing", training.activation_checkpointing
    if mode == "none":
        yield f"{key}.early_stop", True, ": nothing is recomputed (mode: none)"
        yield f"{key}.offload", False, ": nothing is checkpointed (mode: none)"
        yield f"{key}.reentrant", False, ": nothing is checkpointed (mode: none)"
    elif training.checkpoint_reentrant:
        why = ": a reentrant checkpoint recomputes to the end (reentrant: true)"
        yield f"{key}.early_stop", True, why
    elif training.compile != "none":
        why = ": the compiler computes again only what backward reads (compile: block)"
        yield f"{key}.early_stop", True, why
    if mode != "selective-op":
        yield f"{key}.save", None, f" but with mode: selective-op (mode: {mode})"
    if mode != "megatron-selective":
        yield f"{key}.modules", None, f" but with mode: megatron-selective (mode: {mode})"


def _never_called(model: ModelConfig, plan: Plan) -> Iterator[str]:
    """Entries of ``save`` that no block of the model calls."""
    training = plan.training
    if training.activation_checkpointing != "selective-op" or not training.checkpoint_save:
        return
    blocks = {block.name: block for block in decoder_of(model, plan).blocks}
    called = {op.kind for block in blocks.values() for op in block.ops}
    for entry in training.checkpoint_save:
        if parse_save(entry).kind not in called:
            yield f"training.activation_checkpointing.save: no block calls {entry}"


def _of_fine_tuning(tuning: FineTuning | None) -> Iterator[Dead]:
    where = "training.fine_tuning"
    if tuning is not None and tuning.adapters is not None:
        why = ": beside adapters only what also_train names is trained"
        yield f"{where}.freeze", None, why
        why = ": a scaling costs neither memory nor time"
        yield f"{where}.rank_stabilized", False, why
        if tuning.base is None:
            yield f"{where}.double_quant", True, ": no weight is quantised (base)"
        return
    why = ": there are no adapters (method: full)"
    for key, harmless in (
        ("rank", 16),
        ("targets", None),
        ("dropout", 0),
        ("adapters", None),
        ("base", None),
        ("double_quant", True),
        ("also_train", None),
        ("dora", False),
        ("rank_stabilized", False),
        ("norms", None),
    ):
        yield f"{where}.{key}", harmless, why


def _of_optimizer(plan: Plan) -> Iterator[Dead]:
    name = plan.training.optimizer
    why = f": it is no part of what {name} holds or launches"
    if name != "sgd":
        yield "training.optimizer.momentum", None, why
    if name not in ("adam", "adamw", "muon"):
        yield "training.optimizer.amsgrad", False, why
    if name not in ("adam", "adamw", "adafactor", "muon", "sgd"):
        yield "training.optimizer.weight_decay", None, why


def _left_out(plan: Plan) -> Iterator[str]:
    """What is not counted of an optimizer that runs on the device."""
    name = plan.training.optimizer
    if name in LEFT_OUT and not plan.offload_parameters:
        yield f"training.optimizer: {name}: {LEFT_OUT[name]}"


def _of_model(model: ModelConfig) -> Iterator[Dead]:
    if model.heads == model.kv_heads:
        yield "model.kv_expand", True, ": every query head has its own keys (heads = kv_heads)"
    if model.style == "hf" and not _drops(model):
        yield "model.dropout", None, f": {model.family} has dropout in eager attention alone"
    if model.expert_ffn and not model.dense_layers:
        yield "model.ffn", None, ": every layer has experts, of expert_ffn"


def _drops(model: ModelConfig) -> bool:
    return model.attention == "eager" or model.family in ("gpt2", "gpt_neox", "mpt", "phi3")


def _of_software() -> Iterator[Dead]:
    why = ": no rule of this version depends on it"
    for library in ("transformers", "nccl", "deepspeed", "megatron", "bitsandbytes"):
        yield f"software.{library}", None, why
