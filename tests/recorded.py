"""Recorded runs of real PyTorch 2.13 and the (model, plan) that each of them is.

``tests/data/fsdp2_runs.json.gz`` holds, for each run, its configuration, the live bytes at every
FSDP hook boundary and the peak of every phase by category: torch's own FSDP2, autograd and
optimizers on fake CUDA tensors, every storage rounded to 512 bytes, in host order.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from simulator.dtypes import SHORT_NAMES, DType
from simulator.fine_tuning import Adapters, FineTuning
from simulator.lowering.lower import decoder_of, lower
from simulator.model.config import ModelConfig
from simulator.model.presets import PRESETS
from simulator.plan.plan import Fsdp, Hyper, Parallelism, Plan, Precision, Training
from simulator.program.program import Program

DATA = Path(__file__).parent / "data"

MODELS = {
    "titan:llama2_7b": PRESETS["llama-2-7b"],
    "titan:llama2_13b": PRESETS["llama-2-13b"],
    "titan:llama2_70b": PRESETS["llama-2-70b"],
    "titan:llama3_8b": PRESETS["llama-3.1-8b"],
    "titan:llama3_70b": PRESETS["llama-3.1-70b"],
    "titan:llama3_405b": PRESETS["llama-3.1-405b"],
    "titan:debug": ModelConfig(
        name="debug",
        family="llama",
        layers=4,
        hidden=256,
        ffn=768,
        heads=8,
        kv_heads=4,
        vocab=2048,
        head_dim=32,
    ),
    "titan:odd": ModelConfig(
        name="odd",
        family="llama",
        layers=3,
        hidden=200,
        ffn=555,
        heads=5,
        kv_heads=1,
        vocab=1999,
        head_dim=40,
    ),
}

CATEGORY = {
    "activation": "activations",
    "recompute_act": "recomputed",
    "temp": "temporaries",
    "sharded_param": "parameters",
    "unsharded_param": "unsharded_parameters",
    "all_gather_out": "all_gather",
    "ag_cast_shard": "all_gather",
    "sharded_grad": "gradients",
    "unsharded_grad": "unsharded_gradients",
    "rs_input": "reduce_scatter",
    "rs_output": "reduce_scatter",
    "optstate": "optimizer",
    "opt_temp": "optimizer_temporaries",
    "input": "inputs",
    "buffer": "buffers",
    "ddp_bucket": "buffers",
}
"""The recorder's categories -> ours."""

PHASE = {
    "init": "init",
    "fwd": "forward",
    "bwd": "backward",
    "clip": "optimizer",
    "opt": "optimizer",
}


CHECKPOINTING = {
    "none": "none",
    "full": "full",
    "selective_op": "selective-op",
    "selective_2": "every-2",
    "selective_3": "every-3",
}
"""The recorder's modes -> ours; with ``_noearly`` behind they recompute to the end."""


def checkpointing_of(ac: str) -> dict[str, Any]:
    """The recorder's ``ac`` in our words."""
    outer = ac.removesuffix("_reentrant")
    eager = outer.removesuffix("_offload")
    mode = eager.removesuffix("_noearly")
    found: dict[str, Any] = {
        "early_stop": mode == eager,
        "checkpoint_offload": eager != outer,
        "checkpoint_reentrant": outer != ac,
    }
    kind, _, which = mode.partition("_")
    if kind == "part":
        modules = tuple(which.split("+"))
        return found | {
            "activation_checkpointing": "megatron-selective",
            "checkpoint_modules": modules,
        }
    if kind == "save":
        save = tuple(f"aten.{name}" for name in which.split(",") if name)
        return found | {"activation_checkpointing": "selective-op", "checkpoint_save": save}
    return found | {"activation_checkpointing": CHECKPOINTING[mode]}


WRAP = {
    "titan": "torchtitan",
    "titan_oldlast": "torchtitan",
    "block_root": "block",
    "oldtitan": "block",
    "none": "none",
    "peft": "peft",
}

PATTERNS = {
    "torchtitan": {"embedding": "tok_embeddings", "blocks": "layers.*", "head": "norm, output"},
    "hf": {
        "embedding": "model.embed_tokens",
        "blocks": "model.layers.*",
        "head": "model.norm, lm_head",
    },
}
"""The parts that the recorder wraps by name -> modules, by style of model (hf: Llama's)."""

PACKING = {"none": "packed", "ones": "padded", "padded": "full"}
"""The recorder's masks -> how a batch comes by them; of ones, if it is of one sequence."""

IMPLEMENTATION = {"fused": "fused", "foreach": "foreach", "loop": "for-loop"}
"""The recorder's words behind an optimizer's name; the first of ours where there is none."""


def optimizer_of(words: str | None) -> dict[str, Any]:
    """The fields of Training for a name of the recorder's, as ``adamw_loop_amsgrad``."""
    name, *rest = (words or "adamw_fused").split("_")
    ways = [IMPLEMENTATION[word] for word in rest if word in IMPLEMENTATION]
    return {
        "optimizer": name.removesuffix("m") if name == "sgdm" else name,
        "optimizer_implementation": ways[0] if ways else "foreach",
        "hyper": Hyper(
            weight_decay=0.1 if "wd" in rest else None,
            momentum=0.0 if name == "sgd" else 0.9,
            amsgrad="amsgrad" in rest,
        ),
    }


FP8 = {
    None: None,
    "tensorwise": "tensorwise",
    "rowwise": "rowwise",
    "all_gather": "tensorwise-all-gather",
}

PREFETCH = {"BACKWARD_PRE": "pre", "BACKWARD_POST": "post", None: "none"}


@cache
def runs() -> dict[str, Any]:
    """All recorded runs by name."""
    with gzip.open(DATA / "fsdp2_runs.json.gz", "rt") as file:
        loaded: dict[str, Any] = json.load(file)
    return loaded


def model_of(config: dict[str, Any]) -> ModelConfig:
    """The model of a recorder's configuration: torchtitan's style, or transformers' by preset."""
    attention = config["attn"] if config["attn"] in ("efficient", "eager") else "sdpa"
    if config["model"] in MODELS:
        return replace(
            MODELS[config["model"]],
            rms_norm="fused" if config["fused_rms"] else "composite",
            kv_expand=not config["gqa_native"],
            layers=config["n_layers"] or MODELS[config["model"]].layers,
            attention=attention,
        )
    preset = PRESETS[config["model"]]
    layers = config["n_layers"] or preset.layers
    window = None if preset.family == "phi3" else preset.window  # recorded without a window
    return replace(preset, style="hf", attention=attention, layers=layers, window=window)


def precision_of(config: dict[str, Any]) -> Precision:
    """The precision of a recorder's configuration; what it leaves out is as stored."""
    dtype: dict[str | None, DType | None] = {**SHORT_NAMES, None: None}
    stored = dtype[config["master"]]
    assert stored is not None
    compute = dtype[config["param_dtype"]] or stored
    return Precision(
        name="recorded",
        parameters=stored,
        compute=compute,
        gradients=stored,
        reduce=dtype[config["reduce_dtype"]] or compute,
        master=None,
        moments=stored,
        autocast=DType.BF16 if config["autocast"] else None,
        loss_scaling=config.get("loss_scaling", False),
        fp8=FP8[config.get("fp8")],
    )


def fine_tuning_of(config: dict[str, Any]) -> FineTuning | None:
    """What a recorder's configuration trains; None is everything."""
    if not config.get("lora"):
        freeze = tuple(config.get("freeze", ()))
        return FineTuning(freeze=freeze) if freeze else None
    dtype = config.get("lora_dtype") or (
        "fp32" if config.get("options", {}).get("upcast") else None
    )
    return FineTuning(
        adapters=Adapters(
            rank=config.get("rank", 16),
            targets=tuple(config["lora"].split(",")),
            dropout=config.get("lora_dropout", 0.0),
            dora=config.get("dora", False),
            dtype=SHORT_NAMES[dtype] if dtype and dtype != config["master"] else None,
        ),
        also_train=tuple(config.get("trains", ())),
        wide_norms=config.get("wide_norms", False),
    )


def wrap_of(config: dict[str, Any], model: ModelConfig) -> str | tuple[str, ...]:
    """The wrapping of a recorder's configuration, its parts by the model's names for them."""
    wrap = config["wrap"]
    if config.get("framework") in ("single", "ddp"):
        return "none"
    if isinstance(wrap, str):
        return WRAP[wrap]
    return tuple(PATTERNS[model.style][part] for part in wrap)


def model_and_plan(config: dict[str, Any]) -> tuple[ModelConfig, Plan]:
    """A recorder's configuration in our words."""
    model = model_of(config)
    replicas = config["hsdp"] or (config["ws"] if config.get("framework") == "ddp" else 1)
    options = config.get("options", {})
    loss, chunks = loss_of(config)
    plan = Plan(
        parallelism=Parallelism(
            framework=config.get("framework", "fsdp2"),
            dp_replicate=replicas,
            dp_shard=config["ws"] // replicas,
            fsdp=Fsdp(
                wrap=wrap_of(config, model),
                reshard_after_forward=config["reshard"],
                reshard_last_block=config["wrap"] not in ("titan_oldlast", "oldtitan"),
                reshard_after_backward=config["reshard_after_backward"],
                sync_every_micro_batch=config["ga_sync"],
                forward_prefetch=config["prefetch_fwd"],
                backward_prefetch=PREFETCH[options.get("backward_prefetch", "BACKWARD_PRE")],
                limit_all_gathers=options.get("limit_all_gathers", True),
                use_orig_params=options.get("use_orig_params", True),
            ),
        ),
        training=Training(
            seq_len=config["seq"],
            micro_batch=config["mb"],
            packing=PACKING[config.get("mask", "none")],
            grad_accum=config["grad_accum"],
            precision=precision_of(config),
            **optimizer_of(config["opt"]),
            optimizer_in_backward=config.get("in_backward", False),
            clip_grad_norm=1.0 if config["clip"] else None,
            **checkpointing_of(config["ac"]),
            attention=config["attn"],
            fine_tuning=fine_tuning_of(config),
            loss=loss,
            loss_chunks=chunks,
        ),
        offload_parameters=config["cpu_offload"],
    )
    return model, plan


def loss_of(config: dict[str, Any]) -> tuple[str, int]:
    """The loss of a recorder's configuration, and its chunks: ``chunked-8``.

    Older recordings call the eager one ``titan``, or do not name it.
    """
    name = config.get("loss") or "eager"
    if name == "titan":
        return "eager", 1
    kind, _, count = name.replace("chunked-logits", "chunked").rpartition("-")
    return (kind, int(count)) if count.isdigit() else (name, 1)


def program_of(config: dict[str, Any], steps: int = 2) -> Program:
    """The program that lowering makes of a recorder's configuration."""
    model, plan = model_and_plan(config)
    return lower(decoder_of(model, plan), plan, steps)


def peaks_by_phase(run: dict[str, Any]) -> dict[tuple[int, str], dict[str, Any]]:
    """The recorded peak of each (step, phase): total, breakdown in our categories, module."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for name, peak in run["peaks"].items():
        phase, _, place = name.partition(":")
        key = (int(place.partition(".")[0] or 0), PHASE[phase])
        if key in found and found[key]["total"] >= peak["total"]:
            continue
        parts: dict[str, int] = {}
        for category, size in peak["by"].items():
            parts[CATEGORY[category]] = parts.get(CATEGORY[category], 0) + size
        found[key] = {"total": peak["total"], "by": parts, "module": peak["mod"]}
    return found
