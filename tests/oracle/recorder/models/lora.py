"""peft's adapters in a model's linears, and frozen parts."""

from __future__ import annotations

from unittest.mock import patch

from peft import LoraConfig, inject_adapter_in_model
from torch import nn

from recorder.case import Case
from recorder.models.built import DTYPES, Built, building

ALL_LINEAR = "all-linear"


def fine_tune(built: Built, case: Case) -> None:
    """Give the case's linears adapters, freeze what it does not train."""
    parts: dict[str, list[nn.Module]] = {
        "embed": [built.embedding],
        "layers": list(built.blocks),
        "norm": built.head[:1],
        "head": built.head[1:],
    }
    if case.lora is not None:
        _inject(built, case)
    if case.wide_norms:  # trl's peft_module_casting_to_bf16
        for path, parameter in built.root.named_parameters():
            if "norm" in path:
                parameter.data = parameter.data.float()
    for name, modules in parts.items():
        trained = name in case.trains if case.lora else name not in case.freeze
        for number, module in enumerate(modules):
            frozen = f"{name}.{number}" in case.freeze
            for key, parameter in module.named_parameters():
                parameter.requires_grad_((trained and not frozen) or "lora_" in key)


def _inject(built: Built, case: Case) -> None:
    assert case.lora is not None
    linears = {
        name.rpartition(".")[2]
        for block in built.blocks
        for name, module in block.named_modules()
        if isinstance(module, nn.Linear)
    }
    asked = linears if case.lora == ALL_LINEAR else set(case.lora.split(","))
    config = LoraConfig(
        r=case.rank,
        target_modules=sorted(asked),
        lora_dropout=case.lora_dropout,
        bias="none",
        use_dora=case.dora,
    )
    # made on the device and in the dtype they are to have: fake tensors can't be moved in place
    with (
        building(DTYPES[case.lora_dtype] or DTYPES[case.master]),
        patch.object(nn.Module, "_apply", lambda module, *_, **__: module),
    ):
        inject_adapter_in_model(config, built.root)
