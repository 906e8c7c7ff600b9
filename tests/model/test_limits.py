"""What the graphs refuse because PyTorch would run something else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.dtypes import DType
from simulator.errors import UnsupportedError
from simulator.model.decoder import Shape
from simulator.model.families import FAMILIES
from simulator.model.presets import PRESETS


def test_flash_attention_stops_at_heads_of_256() -> None:
    shape = Shape(batch=1, seq=8, dtype=DType.BF16)
    config = replace(PRESETS["llama-2-7b"], head_dim=256)
    assert FAMILIES["llama"](config, shape).parameters > 0
    with pytest.raises(UnsupportedError, match="up to 256, and these have 257"):
        FAMILIES["llama"](replace(config, head_dim=257), shape)
