"""Model families: how a config becomes graphs. One file a family, joined here."""

from __future__ import annotations

from collections.abc import Callable

from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families.llama import llama

FAMILIES: dict[str, Callable[[ModelConfig, Shape], Decoder]] = {"llama": llama}
"""Family name -> function that writes the graphs of a decoder for one micro-batch shape."""
