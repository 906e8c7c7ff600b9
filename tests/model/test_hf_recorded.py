"""Hugging Face's modules: graphs against what real PyTorch and transformers did, to the byte.

* Whole small models, forward, loss and backward: the same allocations in the same order, and
  between two of them the same frees. Odd shapes, one head, one token, batch 1, windows, dropout;
  all of them in bf16, and again in fp32 under ``torch.autocast``.
* Blocks of published models: the bytes that autograd keeps.
* Parameter counts, and each parameter's name and place in the order of registration.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from simulator.dtypes import DType
from simulator.lowering.recompute import plan_recompute
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families import FAMILIES
from simulator.model.hf_config import from_hf_config
from simulator.model.presets import PRESETS
from simulator.program.instructions import rounded
from tests.model.play import Player
from tests.model.test_recorded_model import kept_bytes
from tests.recorded import DATA

RECORDED: dict[str, Any] = json.loads((DATA / "recorded_hf.json").read_text())
TRACES: dict[str, Any] = json.loads(
    gzip.decompress((DATA / "recorded_hf_traces.json.gz").read_bytes())
)["runs"]


UNDER_AUTOCAST: dict[str, list[int]] = json.loads(
    gzip.decompress((DATA / "recorded_hf_autocast_traces.json.gz").read_bytes())
)["runs"]


def decoder(
    config: ModelConfig, batch: int, seq: int, mask: str = "none", *, autocast: bool = False
) -> Decoder:
    dtype, to = (DType.FP32, DType.BF16) if autocast else (DType.BF16, None)
    shape = Shape(batch=batch, seq=seq, dtype=dtype, autocast=to, mask=mask)
    return FAMILIES[config.family](config, shape)


def stretches(events: list[int]) -> list[tuple[int, ...]]:
    """Each allocation alone; the frees between two allocations together, in no order."""
    found: list[tuple[int, ...]] = []
    frees: list[int] = []
    for size in events:
        if size < 0:
            frees.append(size)
            continue
        if frees:
            found.append(tuple(sorted(frees)))
        frees = []
        found.append((size,))
    return [*found, tuple(sorted(frees))]


@pytest.mark.parametrize("name", sorted(TRACES))
def test_every_allocation_and_free_of_a_small_model(name: str) -> None:
    run = TRACES[name]
    mask = run.get("mask", "none")
    model = decoder(from_hf_config(run["config"]), run["batch"], run["seq"], mask)
    ours = [size if kind == "A" else -rounded(size) for kind, size, _ in Player(model).run()]
    for mine, recorded in zip(stretches(ours), stretches(run["events"]), strict=True):
        assert mine == recorded


@pytest.mark.parametrize("name", sorted(UNDER_AUTOCAST))
def test_every_allocation_and_free_under_autocast(name: str) -> None:
    """All in multiples of 512 bytes; a weight's cast stays until the context exits."""
    run = TRACES[name]
    model = decoder(from_hf_config(run["config"]), run["batch"], run["seq"], autocast=True)
    ours = [rounded(size) * (1 if kind == "A" else -1) for kind, size, _ in Player(model).run()]
    for mine, recorded in zip(stretches(ours), stretches(UNDER_AUTOCAST[name]), strict=True):
        assert mine == recorded


@pytest.mark.parametrize("name", sorted(TRACES))
def test_parameters_are_registered_in_torchs_order(name: str) -> None:
    run = TRACES[name]
    model = decoder(from_hf_config(run["config"]), run["batch"], run["seq"])
    recorded = [(n, tuple(shape)) for n, shape in run["parameters"]]
    for layer, graph in enumerate(model.blocks):
        first = model.block_fqn.replace("*", str(layer)) + "."
        block = [(n.removeprefix(first), shape) for n, shape in recorded if n.startswith(first)]
        assert [(weight.name, weight.shape) for weight in graph.weights] == block
    around = [
        weight.shape
        for graph in (model.embedding, model.head)
        for weight in graph.weights
        if not weight.tied
    ]
    blocks = model.block_fqn.removesuffix("*")
    assert around == [shape for n, shape in recorded if not n.startswith(blocks)]
    buffers = [(n.partition(".")[2], tuple(shape) or (1,)) for n, shape, _ in run["buffers"]]
    assert [(buffer.name, buffer.shape) for buffer in model.buffers] == buffers


@pytest.mark.parametrize("name", sorted(RECORDED["blocks"]))
def test_bytes_autograd_keeps_in_a_block(name: str) -> None:
    case = RECORDED["blocks"][name]
    changes: dict[str, Any] = {"style": "hf", "attention": case["attention"], "window": None}
    if "dropout" in case:
        changes |= dict.fromkeys(
            ("dropout", "embedding_dropout", "attention_dropout"), case["dropout"]
        )
    if "activation" in case:
        changes["activation"] = case["activation"]
    config = replace(PRESETS[case["model"]], **changes)
    autocast = case.get("autocast", False)
    graph = decoder(config, case["batch"], case["seq"], autocast=autocast).blocks[0]
    recompute = plan_recompute(graph, case.get("recompute", "none"))
    if recompute.regions:
        # the recorder counts storages rounded to 512: lse and seeds add under 1 KiB
        live = kept_bytes(graph, recompute.kept)
        assert live == pytest.approx(case["live_after_forward"], abs=1024)
    else:
        assert graph.saved_bytes() == case["saved_bytes"]


@pytest.mark.parametrize("model", sorted(RECORDED["padded_blocks"]))
def test_bytes_autograd_keeps_in_a_block_of_a_padded_batch(model: str) -> None:
    case = RECORDED["padded_blocks"][model]
    window = None if model.startswith("phi") else PRESETS[model].window  # recorded without one
    changes = {"activation": case["activation"]} if "activation" in case else {}
    config = replace(
        PRESETS[model], style="hf", attention=case["attention"], window=window, **changes
    )
    graph = decoder(config, case["batch"], case["seq"], "padded").blocks[0]
    kept = (graph.values[value].bytes for value in graph.saved_values())
    assert sum(map(rounded, kept)) == case["rounded_bytes"]


@pytest.mark.parametrize("name", sorted(RECORDED["parameters"]))
def test_parameter_counts(name: str) -> None:
    recorded = RECORDED["parameters"][name]
    model = decoder(replace(PRESETS[name], style="hf"), 1, 8)
    assert model.parameters == recorded["total"]
    each = dict.fromkeys(graph.parameters for graph in model.blocks)
    per_layer = recorded["per_layer"]  # of each kind of layer, in order
    assert list(each) == (per_layer if isinstance(per_layer, list) else [per_layer])
