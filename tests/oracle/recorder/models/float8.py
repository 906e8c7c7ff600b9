"""torchao's float8 linears in a model's blocks."""

from __future__ import annotations

from torch import nn
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

from recorder.case import Case
from recorder.models.built import Built


def convert(built: Built, case: Case) -> None:
    """Swap the linears of the blocks for float8 ones, as torchtitan does: the head is left out."""
    if case.fp8 == "rowwise":
        config = Float8LinearConfig.from_recipe_name("rowwise")
    else:
        config = Float8LinearConfig(enable_fsdp_float8_all_gather=case.fp8 == "all_gather")
    for block in built.blocks:
        convert_to_float8_training(block, config=config, module_filter_fn=_is_linear)


def _is_linear(module: nn.Module, _: str) -> bool:
    return isinstance(module, nn.Linear)
