"""From ``training:`` and ``offload:`` to one training step."""

from __future__ import annotations

import dataclasses
from typing import Any

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map
from simulator.dtypes import DType
from simulator.fine_tuning import FineTuning
from simulator.lowering.policy import CORE_ATTENTION
from simulator.model.config import ModelConfig
from simulator.plan.plan import FP8_ROWWISE, Parallelism, Precision, Training
from simulator.plan.precision import casts, narrowest
from simulator.plan.versions import RULES, Software, default_of, liger_sums_apart
from simulator.scenario.fine_tuning import check_under_fsdp1, resolve_fine_tuning
from simulator.scenario.frameworks import USUAL
from simulator.scenario.precision import check_autocast, resolve_precision
from simulator.scenario.resolve_optimizer import check_in_backward, resolve_optimizer
from simulator.scenario.schema import CheckpointingSection, OffloadSection, TrainingSection

_ATTENTION = {
    "flash": "sdpa",
    "flash-2": "flash_attention_2",
    "efficient": "efficient",
    "eager": "eager",
}
"""``training.attention`` -> what the model's modules call."""

_EAGER_ALONE = ("gemma2", "mpt")
"""Families whose modules know eager attention only."""


def resolve_training(
    section: TrainingSection,
    model: ModelConfig | None,
    mesh: Parallelism | None,
    software: Software,
    tree: Map,
    mistakes: Mistakes,
) -> Training | None:
    """One training step; what does not go together joins ``mistakes``."""
    framework = mesh.framework if mesh else USUAL
    precision = resolve_precision(section.precision, framework, tree, mistakes)
    attention = section.attention or _attention_of(model)
    if model is not None:
        if precision is not None:
            _check_attention(attention, precision, model, framework, tree, mistakes)
        _check_length(section.seq_len, model, tree, mistakes)
        _check_packing(section.packing, attention, model, tree, mistakes)
        _check_one_token(section, attention, model, tree, mistakes)
    optimizer = resolve_optimizer(section, model, mesh, tree, mistakes)
    replicas = mesh.dp_replicate * mesh.dp_shard if mesh else 0
    grad_accum = _grad_accum(section, replicas, tree, mistakes)
    check_in_backward(section, grad_accum, precision, mesh, tree, mistakes)
    if precision is None:
        return None
    tuning = None
    if model is not None:
        tuning = resolve_fine_tuning(section.fine_tuning, model, precision, tree, mistakes)
    _check_tuning(tuning, precision, framework, tree, mistakes)
    if mesh is not None and framework == "fsdp1":
        check_under_fsdp1(mesh, tuning, precision, tree, mistakes)
    if model is not None:
        _check_autocast(precision, model.style, tree, mistakes)
    _check_what_meets(section, model, precision, tuning is not None, mesh, tree, mistakes)
    return Training(
        seq_len=section.seq_len,
        micro_batch=section.micro_batch,
        packing=section.packing,
        grad_accum=grad_accum,
        precision=precision,
        optimizer=section.optimizer.name,
        optimizer_implementation=optimizer.implementation,
        optimizer_in_backward=section.optimizer.in_backward,
        hyper=optimizer.hyper,
        clip_grad_norm=section.clip_grad_norm,
        **_checkpointing(section.activation_checkpointing),
        attention=attention,
        **_loss(section, software, model.style if model else "torchtitan"),
        compile=section.compile,
        fine_tuning=tuning,
    )


def _checkpointing(section: CheckpointingSection) -> dict[str, Any]:
    """What backward computes again."""
    return {
        "activation_checkpointing": section.mode,
        "early_stop": section.early_stop,
        "checkpoint_save": section.save,
        "checkpoint_modules": section.modules or CORE_ATTENTION,
        "checkpoint_offload": section.offload,
        "checkpoint_reentrant": section.reentrant,
    }


def _check_tuning(
    tuning: FineTuning | None,
    precision: Precision,
    framework: str,
    tree: Map,
    mistakes: Mistakes,
) -> None:
    """Fine-tuning beside float8 and under DeepSpeed; whether autocast has a thing to cast."""
    own = tuning.adapters.dtype if tuning and tuning.adapters else None
    check_autocast(precision, own, tree, mistakes)
    if tuning is None:
        return
    if precision.fp8 is not None:
        text = "float8 linears are not supported with fine_tuning; leave out one of the two"
        mistakes.at(tree, ("training", "precision", "fp8"), text)
    if tuning.wide_norms and framework not in ("single", "ddp"):
        text = f"{framework} with norms of another dtype than the weights beside them is not yet "
        text += "supported (trl casts none under FSDP); supported: framework: single, ddp"
        mistakes.at(tree, ("training", "fine_tuning", "norms"), text)
    if framework == "deepspeed":
        text = "not yet supported under deepspeed; supported: framework: fsdp2, fsdp1, ddp, single"
        mistakes.at(tree, ("training", "fine_tuning"), text)


def _check_autocast(precision: Precision, style: str, tree: Map, mistakes: Mistakes) -> None:
    """Beside 16-bit weights it casts adapters alone, and what torch's own norm reads."""
    if precision.autocast is precision.compute and style == "torchtitan":
        text = "not supported beside 16-bit weights of torchtitan's modules; use model.style: hf"
        mistakes.at(tree, ("training", "precision", "autocast"), text)


def _loss(section: TrainingSection, software: Software, style: str) -> dict[str, Any]:
    """The loss, its chunks, and what the software's date says of them."""
    loss, chunks = section.loss or (usual_loss(software, style)[0], 1)
    return {
        "loss": loss,
        "loss_chunks": chunks,
        "model_upcasts": style == "torchtitan" and RULES["training.loss"].is_before(software),
        "fused_linear_sums_apart": loss == "fused-linear" and liger_sums_apart(software),
    }


def usual_loss(software: Software, style: str) -> tuple[str, str]:
    """The loss where none is given, and the words for where it comes from."""
    if style != "torchtitan":
        return "eager", "default"
    loss, word = default_of("training.loss", software)
    return str(loss), word


def with_attention(model: ModelConfig, attention: str) -> ModelConfig:
    """The model with the attention that ``training.attention`` asks for."""
    return dataclasses.replace(model, attention=_ATTENTION[attention])


def resolve_offload(
    section: OffloadSection | None, framework: str, tree: Map, mistakes: Mistakes
) -> bool:
    """Whether CPUOffloadPolicy holds parameters, gradients and states: all three or none."""
    if section is None:
        return False
    if section.parameters == "host" and framework != "fsdp2":
        text = f"not yet supported under {framework}; supported: none, or framework: fsdp2"
        mistakes.at(tree, ("offload", "parameters"), text)
    for key in ("gradients", "optimizer"):
        found = getattr(section, key)
        if found is not None and found != section.parameters:
            text = "fsdp2 offloads parameters, gradients and optimizer together; expected "
            mistakes.at(tree, ("offload", key), f"{text}{section.parameters}, or leave it out")
    return section.parameters == "host"


def _attention_of(model: ModelConfig | None) -> str:
    return "eager" if model is not None and model.attention == "eager" else "flash"


def _check_attention(
    attention: str,
    precision: Precision,
    model: ModelConfig,
    framework: str,
    tree: Map,
    mistakes: Mistakes,
) -> None:
    where = ("training", "attention")
    if model.style == "torchtitan" and attention in ("eager", "flash-2"):
        text = f"torchtitan's modules have no {attention} attention; supported: flash, efficient"
        mistakes.at(tree, where, f"{text}, or model.style: hf")
    if model.style == "hf" and attention == "efficient" and model.kv_heads < model.heads:
        text = "PyTorch's efficient kernel takes no grouped heads, and model.style hf passes them "
        mistakes.at(tree, where, f"{text}where there is no mask; supported: flash, eager")
    if model.family in _EAGER_ALONE and attention != "eager":
        mistakes.at(tree, where, f"{model.family} has eager attention alone; supported: eager")
    if precision.autocast is not None and model.experts:
        text = "autocast is not supported for routed experts; the nearest is "
        text += "fsdp-mixed" if casts(framework) else "pure-bf16"
        mistakes.at(tree, ("training", "precision"), text)
    elif attention.startswith("flash") and (precision.autocast or precision.compute) is DType.FP32:
        nearest = ", ".join(narrowest(framework))
        text = f"flash attention computes in 16 bits; the nearest that run it: {nearest}"
        other = "efficient" if model.style == "torchtitan" else "eager"
        hint = f", or training.attention: {other}"
        mistakes.at(tree, ("training", "precision"), f"{text}{hint}")


def _check_what_meets(
    section: TrainingSection,
    model: ModelConfig | None,
    precision: Precision,
    tunes: bool,
    mesh: Parallelism | None,
    tree: Map,
    mistakes: Mistakes,
) -> None:
    """What goes neither with such checkpoints, nor with compiled blocks."""
    if section.activation_checkpointing.offload:
        _check_checkpoint_offload(section, tree, mistakes)
    if section.activation_checkpointing.reentrant:
        _check_reentrant(section, mesh, tree, mistakes)
    if precision.fp8 == FP8_ROWWISE and section.compile == "none":
        text = "rowwise scales are modelled of compiled blocks; set compile: block, or use "
        mistakes.at(tree, ("training", "precision", "fp8"), f"{text}tensorwise")
    if section.compile != "none":
        parts = {"fine_tuning": tunes, "padding": section.packing != "packed"}
        if model is not None:
            parts |= {"mixtures of experts": model.experts > 0, "mpt": model.family == "mpt"}
        _check_compile(precision, parts, tree, mistakes)


def _check_checkpoint_offload(section: TrainingSection, tree: Map, mistakes: Mistakes) -> None:
    """What waits on the host are the arguments of whole blocks, checkpointed eagerly."""
    parts = section.activation_checkpointing.mode == "megatron-selective"
    if parts or section.compile != "none":
        what = "mode: megatron-selective" if parts else f"compile: {section.compile}"
        text = f"not yet supported with {what}; supported: false"
        mistakes.at(tree, ("training", "activation_checkpointing", "offload"), text)


def _check_reentrant(
    section: TrainingSection, mesh: Parallelism | None, tree: Map, mistakes: Mistakes
) -> None:
    """``use_reentrant=True`` around whole blocks, which run again to their end."""
    checkpointing, text = section.activation_checkpointing, ""
    framework = mesh.framework if mesh else "single"
    prefetches = framework == "fsdp1" and mesh is not None and mesh.fsdp.forward_prefetch > 0
    if checkpointing.mode in ("selective-op", "megatron-selective"):
        text = f"mode: {checkpointing.mode}"
    elif checkpointing.offload:
        text = "offload: true"
    elif section.compile != "none":
        text = f"compile: {section.compile}"
    elif framework in ("fsdp2", "deepspeed"):
        text = f"framework: {framework}"
    elif prefetches:
        text = "fsdp.forward_prefetch"
    if text:
        where = ("training", "activation_checkpointing", "reentrant")
        mistakes.at(tree, where, f"not yet supported with {text}; supported: false")


def _check_compile(
    precision: Precision, parts: dict[str, bool], tree: Map, mistakes: Mistakes
) -> None:
    found = {
        "autocast": precision.autocast is not None,
        **parts,
    }
    what = ", ".join(name for name, there in found.items() if there)
    if what:
        text = f"not yet supported with {what}; supported: none"
        mistakes.at(tree, ("training", "compile"), text)


def _check_length(seq_len: int, model: ModelConfig, tree: Map, mistakes: Mistakes) -> None:
    """Learned positions and ALiBi's table end somewhere."""
    if model.positions and seq_len > model.positions:
        text = f"found {seq_len}, but {model.name} has {model.positions} positions"
        mistakes.at(tree, ("training", "seq_len"), text)


def _check_packing(
    packing: str, attention: str, model: ModelConfig, tree: Map, mistakes: Mistakes
) -> None:
    """What is padded comes with a mask, which torchtitan's modules have no place for."""
    if attention == "flash-2" and packing != "packed":
        text = "flash-2 with padding, which it leaves out, is not yet supported; supported: packed"
        mistakes.at(tree, ("training", "packing"), text)
    if packing != "packed" and model.style == "torchtitan":
        text = f"torchtitan's modules take no mask of padding, so {packing!r} has no effect; "
        mistakes.at(tree, ("training", "packing"), f"{text}supported: packed, or model.style: hf")


def _check_one_token(
    section: TrainingSection, attention: str, model: ModelConfig, tree: Map, mistakes: Mistakes
) -> None:
    """sdpa folds the queries of a group into one where each sequence has a single token.

    Source: ``pack_gqa`` of transformers' integrations/sdpa_attention.py.
    """
    padded = section.packing == "full" or (section.packing == "padded" and section.micro_batch > 1)
    masked = padded or model.window == 1
    grouped = model.kv_heads < model.heads and model.style == "hf"
    if section.seq_len == 1 and masked and grouped and attention != "eager":
        text = "one token under a mask with grouped heads is not supported; supported: from 2 on, "
        mistakes.at(tree, ("training", "seq_len"), f"{text}or training.attention: eager")


def _grad_accum(section: TrainingSection, replicas: int, tree: Map, mistakes: Mistakes) -> int:
    """Micro-steps of a step: as given, or what makes ``global_batch`` sequences of them."""
    given, whole, each = section.grad_accum, section.global_batch, section.micro_batch * replicas
    if whole is None or not replicas:
        return given or 1
    where, once = ("training", "global_batch"), f"{section.micro_batch} × {replicas} ranks"
    if given is not None and given * each != whole:
        text = f"found {whole}, but micro_batch × ranks × grad_accum = {once} × {given}"
        mistakes.at(tree, where, f"{text} = {given * each}; leave out one of the two")
    elif whole % each:
        text = f"found {whole}, which is no multiple of micro_batch × ranks = {once} = {each}"
        mistakes.at(tree, where, text)
    return given or max(1, whole // each)
