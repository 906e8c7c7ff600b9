"""What every model family must keep to, in each of its styles and for each preset.

A graph is well-formed: values are made before they are read, storages go once, every weight gets
one gradient of its own shape. Backward does twice the forward's matrix products. It lowers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import prod

import pytest

from simulator.dtypes import DType
from simulator.errors import UnknownNameError, UnsupportedError
from simulator.kernels import Gemm, GroupedGemm
from simulator.lowering.lower import decoder_of, lower
from simulator.memory.ledger import replay
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder, Shape
from simulator.model.families import FAMILIES, WRITERS
from simulator.model.graph import Graph
from simulator.model.presets import PRESETS
from simulator.plan.plan import Fsdp
from simulator.program.verify import verify
from tests.model.play import Player
from tests.strategies import make_plan

EAGER_ONLY = {"gemma2", "mpt", "gpt_oss"}
ONE_LAUNCH_ONLY = {"gpt_oss"}
PRODUCTS = (Gemm, GroupedGemm)
SHAPES = {"batch": (3, 20), "one": (1, 20)}


def configs() -> Iterator[tuple[str, ModelConfig]]:
    """Each preset in each style of its family; Hugging Face's with each sort of attention."""
    families: set[str] = set()
    for name, preset in PRESETS.items():
        for family, style in WRITERS:
            if family != preset.family or (style == "torchtitan" and preset.tied):
                continue
            config = replace(preset, style=style)
            yield f"{name}-{style}", config
            if config.experts and family not in families | ONE_LAUNCH_ONLY:
                yield (
                    f"{name}-one-by-one",
                    replace(
                        config, experts=min(config.experts, 16), experts_implementation="eager"
                    ),
                )
            families.add(family)
            if style == "hf" and family not in EAGER_ONLY:
                yield f"{name}-hf-eager", replace(config, attention="eager")
                if config.window is not None:
                    yield f"{name}-hf-windowed", replace(config, window=8)


CONFIGS = dict(configs())
ALL = [(name, sort) for name in CONFIGS for sort in SHAPES]


def decoder(name: str, sort: str) -> Decoder:
    config = CONFIGS[name]
    batch, seq = SHAPES[sort]
    return FAMILIES[config.family](config, Shape(batch=batch, seq=seq, dtype=DType.BF16))


def graphs(model: Decoder) -> tuple[Graph, ...]:
    return *model.graphs, model.loss


def test_every_writer_has_a_preset() -> None:
    assert {(c.family, c.style) for c in CONFIGS.values()} == set(WRITERS)


@pytest.mark.parametrize(("name", "sort"), ALL)
def test_values_are_made_once_and_before_they_are_read(name: str, sort: str) -> None:
    for graph in graphs(decoder(name, sort)):
        known = {*graph.borrows, *graph.tables, *(() if graph.input is None else (graph.input,))}
        for op in graph.ops:
            for number in (*op.inputs, *op.passes):
                assert number in known, (graph.name, op.name)
            for number in op.outputs:
                assert number not in known, (graph.name, op.name)
                base = graph.values[number].base
                assert base is None or base in known or base == number
                assert base is not None or not op.is_view
            known.update(op.outputs)
            assert known.issuperset((*op.saves, *op.releases, *op.borrows))
            assert set(op.passes) <= set(op.inputs)
        assert known == set(range(len(graph.values)))
        names = Counter(value.name for value in graph.values)
        assert set(names.values()) == {1}, [n for n, count in names.items() if count > 1]


@pytest.mark.parametrize(("name", "sort"), ALL)
def test_every_storage_goes_once(name: str, sort: str) -> None:
    for graph in graphs(decoder(name, sort)):
        released = Counter(number for op in graph.ops for number in op.releases)
        assert set(released.values()) <= {1}
        made = {n for op in graph.ops for n in op.outputs if graph.values[n].base is None}
        others = {graph.output, *graph.lends, *graph.until_loss, *graph.until_return}
        others |= {*graph.through_loss, *graph.returns}
        assert made - set(released) == made & others
        assert set(released) <= made | {graph.input, *graph.borrows}
        gone: set[int] = set()
        for op in graph.ops:
            for number in (*op.inputs, *op.outputs):
                base = graph.values[number].base
                assert (number if base is None else base) not in gone, (graph.name, op.name)
            gone.update(op.releases)


@pytest.mark.parametrize(("name", "sort"), ALL)
def test_lent_values_are_lent_by_the_embedding(name: str, sort: str) -> None:
    model = decoder(name, sort)
    lent = {
        model.embedding.values[n].name: model.embedding.values[n] for n in model.embedding.lends
    }
    for graph in model.graphs[1:]:
        for number in graph.borrows:
            value = graph.values[number]
            assert (value.shape, value.dtype) == (lent[value.name].shape, lent[value.name].dtype)
    assert not model.loss.borrows
    released = {model.head.values[n].name for op in model.head.ops for n in op.releases}
    assert set(lent) <= released


@pytest.mark.parametrize(("name", "sort"), ALL)
def test_every_weight_gets_one_gradient_of_its_shape(name: str, sort: str) -> None:
    model = decoder(name, sort)
    for graph in graphs(model):
        weights = {weight.name: weight for weight in graph.weights}
        assert len(weights) == len(graph.weights)
        made = [g for op in graph.ops for g in op.gradients if g.weight is not None]
        whole = {op.accumulates: op for op in graph.ops if op.accumulates}
        assert Counter([*(g.weight for g in made), *whole]) == Counter(list(weights))
        for weight, op in whole.items():
            assert graph.values[op.outputs[0]].shape == weights[weight].shape
        for gradient in made:
            assert gradient.weight is not None
            assert gradient.shape == weights[gradient.weight].shape
            assert gradient.dtype is DType.BF16
    tied = [weight for weight in model.head.weights if weight.tied]
    assert bool(tied) == CONFIGS[name].tied
    for weight in tied:
        assert (weight.name, weight.shape) in {(w.name, w.shape) for w in model.embedding.weights}


@pytest.mark.parametrize(("name", "sort"), ALL)
def test_gradients_have_their_targets_size_and_dtype(name: str, sort: str) -> None:
    for graph in graphs(decoder(name, sort)):
        for op in graph.ops:
            steps = [number for step in op.backward for number in step.outputs]
            assert steps == list(range(len(op.gradients))), op.name
            temporaries = {
                number
                for number, g in enumerate(op.gradients)
                if g.value is None and g.weight is None
            }
            freed = [number for step in op.backward for number in step.frees]
            assert sorted(freed) == sorted(temporaries), op.name
            for gradient in op.gradients:
                if gradient.value is not None:
                    assert gradient.value in op.inputs, op.name
                    target = graph.values[gradient.value]
                    assert prod(gradient.shape) == prod(target.shape), (op.name, gradient.name)
                    assert gradient.dtype is target.dtype, (op.name, gradient.name)


@pytest.mark.parametrize(("name", "sort"), ALL)
def test_backward_does_twice_the_products(name: str, sort: str) -> None:
    for graph in graphs(decoder(name, sort)):
        forward = [op.kernel.flops for op in graph.ops if isinstance(op.kernel, PRODUCTS)]
        steps = [step.kernel for op in graph.ops for step in op.backward]
        assert sum(k.flops for k in steps if isinstance(k, PRODUCTS)) == 2 * sum(forward)


@pytest.mark.parametrize("name", CONFIGS)
def test_products_of_a_block_are_two_a_weight_and_token(name: str) -> None:
    """Of experts, those it is sent to; eager attention adds its two products."""
    model, config = decoder(name, "batch"), CONFIGS[name]
    batch, seq = SHAPES["batch"]
    scores = 2 * batch * seq * seq * config.heads * (config.head_dim + config.v_width)
    eager = config.style == "hf" and config.attention == "eager"
    for block in model.graphs[1:-1]:
        weights = [weight for weight in block.weights if not weight.name.endswith("bias")]
        matrices = sum(weight.active for weight in weights if len(weight.shape) > 1)
        flops = sum(op.kernel.flops for op in block.ops if isinstance(op.kernel, PRODUCTS))
        assert flops == 2 * batch * seq * matrices + (scores if eager else 0)


@pytest.mark.parametrize(("name", "sort"), ALL)
def test_only_gradients_are_left_after_a_step(name: str, sort: str) -> None:
    config = replace(CONFIGS[name], layers=2)
    batch, seq = SHAPES[sort]
    model = FAMILIES[config.family](config, Shape(batch=batch, seq=seq, dtype=DType.BF16))
    events = Player(model).run()
    left = Counter(size for kind, size, _ in events if kind == "A")
    left.subtract(size for kind, size, _ in events if kind == "F")
    weights = [
        *model.embedding.weights,
        *(w for block in model.blocks for w in block.weights),
        *model.head.weights,
    ]
    assert +left == Counter(2 * weight.numel for weight in weights if not weight.tied)
    assert min(left.values()) == 0 or -left == Counter()


@pytest.mark.parametrize("checkpointing", ["none", "full", "selective-op"])
@pytest.mark.parametrize("name", CONFIGS)
def test_it_lowers(name: str, checkpointing: str) -> None:
    config = replace(CONFIGS[name], layers=3)
    plan = make_plan(
        fsdp=Fsdp(wrap="block"),
        seq_len=20,
        micro_batch=2,
        activation_checkpointing=checkpointing,
    )
    program = lower(decoder_of(config, plan), plan, steps=3)
    verify(program)
    resident = replay(program, detail=False).resident
    assert resident[0] == resident[1] == resident[2]


def test_unknown_styles_and_settings_are_refused_by_name() -> None:
    shape = Shape(batch=1, seq=8, dtype=DType.BF16)
    llama, qwen = PRESETS["llama-3.1-8b"], PRESETS["qwen2.5-7b"]
    with pytest.raises(UnsupportedError, match="its styles: torchtitan, torchtune, hf"):
        FAMILIES["llama"](replace(llama, style="megatron"), shape)
    with pytest.raises(UnsupportedError, match="'qwen2' in style 'torchtitan'"):
        FAMILIES["qwen2"](replace(qwen, style="torchtitan"), shape)
    with pytest.raises(UnsupportedError, match=r"dropout: 0\.1 is not supported"):
        FAMILIES["llama"](replace(llama, dropout=0.1), shape)
    for name in ("gemma-2-9b", "mpt-7b", "gpt-oss-20b"):
        preset = PRESETS[name]
        with pytest.raises(UnsupportedError, match="eager"):
            FAMILIES[preset.family](replace(preset, attention="sdpa"), shape)
    with pytest.raises(UnknownNameError, match="did you mean 'llama'"):
        FAMILIES["llama"](replace(llama, family="lama"), shape)
