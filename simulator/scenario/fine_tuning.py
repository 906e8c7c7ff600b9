"""From ``training.fine_tuning:`` to what of the model is trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map
from simulator.dtypes import SHORT_NAMES, DType
from simulator.errors import did_you_mean
from simulator.fine_tuning import (
    ALL_LINEAR,
    MODULES,
    TARGETS,
    Adapters,
    FineTuning,
    Nf4,
    layers_of,
)
from simulator.model.config import ModelConfig
from simulator.plan.plan import Fsdp, Parallelism, Precision
from simulator.scenario.schema import FineTuningSection

PATH = ("training", "fine_tuning")
FSDP = ("parallelism", "fsdp")
PEFT = "peft"
"""The wrapping that gives each adapter an FSDP unit of its own."""


def resolve_fine_tuning(
    section: FineTuningSection,
    model: ModelConfig,
    precision: Precision,
    tree: Map,
    mistakes: Mistakes,
) -> FineTuning | None:
    """What is trained (None: everything); names that the model lacks join ``mistakes``."""
    if section.method == "full":
        freeze = [name for name in section.freeze if not _is_layers(name, model)]
        _check_names("freeze", freeze, (*MODULES, "layers.0", "layers.0-1"), tree, mistakes)
        _check_tied("freeze", section.freeze, model, tree, mistakes)
        _check_some_left(section.freeze, model, tree, mistakes)
        return FineTuning(freeze=section.freeze) if section.freeze else None
    _check_names("targets", section.targets, _targets(model), tree, mistakes)
    _check_names("also_train", section.also_train, ("embed", "norm", "head"), tree, mistakes)
    _check_tied("also_train", section.also_train, model, tree, mistakes)
    if not section.targets and not section.also_train:
        text = "no linear gets adapters and also_train is empty, so nothing is trained; supported: "
        mistakes.at(tree, (*PATH, "targets"), text + ", ".join(_targets(model)))
    adapters = Adapters(
        rank=section.rank,
        targets=section.targets,
        dropout=section.dropout,
        dtype=_adapter_dtype(section, model, precision),
        dora=section.dora,
    )
    if section.dora:
        _check_dora(section, model, precision, tree, mistakes)
    base = None
    if section.base is not None:
        base = Nf4(double_quant=section.double_quant)
        _check_base(model, tree, mistakes)
    if section.norms is not None:
        _check_norms(model, precision, tree, mistakes)
    return FineTuning(
        adapters=adapters,
        base=base,
        also_train=section.also_train,
        wide_norms=section.norms is not None,
    )


def _check_some_left(
    freeze: tuple[str, ...], model: ModelConfig, tree: Map, mistakes: Mistakes
) -> None:
    """A step without gradients is none."""
    frozen = {name.partition(".")[0] for name in freeze}
    tuning = FineTuning(freeze=freeze)
    layers = "layers" in freeze or all(tuning.freezes_layer(n) for n in range(model.layers))
    if frozen >= set(MODULES) and layers:
        text = f"{', '.join(freeze)} are all of the model, so nothing is trained; leave one out"
        mistakes.at(tree, (*PATH, "freeze"), text)


def _check_norms(model: ModelConfig, precision: Precision, tree: Map, mistakes: Mistakes) -> None:
    """What fp32 norms return goes on in fp32, which autocast alone casts for a product."""
    text = ""
    if model.style != "hf" or model.family not in ("llama", "mistral", "qwen2", "qwen3"):
        text = f"not yet supported with {model.family} in style {model.style}; supported: "
        text += "llama, mistral, qwen2, qwen3 in model.style: hf"
    elif precision.autocast is None or precision.compute is not DType.BF16:
        text = "16-bit products of what fp32 norms return need autocast; supported: "
        text += "training.precision: {parameters: bf16, autocast: true}"
    if text:
        mistakes.at(tree, (*PATH, "norms"), text)


def _check_dora(
    section: FineTuningSection,
    model: ModelConfig,
    precision: Precision,
    tree: Map,
    mistakes: Mistakes,
) -> None:
    """What of it was neither recorded nor read."""
    for asked, what, nearest in (
        (section.base is not None, "base: nf4", "leave out one of the two"),
        (precision.autocast is not None, "autocast", "supported: pure-bf16, fsdp-mixed"),
        (model.family == "gpt2", "GPT-2's Conv1D", "supported: families of nn.Linear"),
    ):
        if asked:
            mistakes.at(tree, (*PATH, "dora"), f"not yet supported with {what}; {nearest}")


def check_under_fsdp1(
    mesh: Parallelism,
    tuning: FineTuning | None,
    precision: Precision,
    tree: Map,
    mistakes: Mistakes,
) -> None:
    """What FSDP1 cannot do with frozen weights, or not yet here."""
    adapters = tuning.adapters if tuning else None
    of_wrap = _of_peft if mesh.fsdp.wrap == PEFT else _of_flat
    for asked, where, text in (
        (
            adapters is not None and adapters.dora,
            (*PATH, "dora"),
            "not yet supported under fsdp1; supported: framework: fsdp2, ddp, single",
        ),
        (
            tuning is not None and mesh.fsdp.forward_prefetch > 0,
            (*FSDP, "forward_prefetch"),
            "not yet supported under fsdp1 with fine_tuning; supported: 0",
        ),
        *of_wrap(mesh.fsdp, tuning, precision),
    ):
        if asked:
            mistakes.at(tree, where, text)


Check = tuple[bool, tuple[str, ...], str]


def _of_peft(fsdp: Fsdp, tuning: FineTuning | None, precision: Precision) -> Iterator[Check]:
    """With a unit for each adapter."""
    adapters = tuning.adapters if tuning else None
    yield (
        adapters is None,
        (*FSDP, "wrap"),
        "peft's policy wraps adapters, and there are none; supported: block",
    )
    yield (
        fsdp.backward_prefetch == "post",
        (*FSDP, "backward_prefetch"),
        "not yet supported with wrap: peft; supported: pre, none",
    )
    wide = adapters is not None and adapters.dtype is not None
    yield (
        wide and fsdp.use_orig_params and precision.autocast is None,
        (*FSDP, "use_orig_params"),
        "peft casts its input to the dtype of the shard that it sees, and autocast alone casts it "
        "back; supported: false, training.precision.autocast: true, or fine_tuning.adapters in "
        "the weights' dtype",
    )
    yield (
        tuning is not None and bool(tuning.also_train),
        (*PATH, "also_train"),
        "not yet supported with wrap: peft; supported: wrap: block",
    )


def _of_flat(fsdp: Fsdp, tuning: FineTuning | None, precision: Precision) -> Iterator[Check]:
    """With adapters in the flat parameters of their blocks."""
    adapters = tuning.adapters if tuning else None
    yield (
        adapters is not None and not fsdp.use_orig_params,
        (*FSDP, "use_orig_params"),
        "PyTorch flattens trained and frozen weights together only with use_orig_params; "
        "supported: true, or wrap: peft",
    )
    yield (
        adapters is not None and adapters.dtype is not None,
        (*PATH, "adapters"),
        "a flat parameter has one dtype; supported: that of the weights, or wrap: peft",
    )


def _check_base(model: ModelConfig, tree: Map, mistakes: Mistakes) -> None:
    """bitsandbytes replaces the linears of transformers' modules."""
    if model.style != "hf":
        text = f"not supported with model.style {model.style}; supported: model.style: hf"
        mistakes.at(tree, (*PATH, "base"), text)


def _adapter_dtype(
    section: FineTuningSection, model: ModelConfig, precision: Precision
) -> DType | None:
    """The adapters' dtype, None where it is that of the weights beside them.

    peft keeps adapters in fp32 beside 16-bit weights (``autocast_adapter_dtype``); torchtune has
    them in the weights' dtype. Where FSDP casts what it gathers, it casts the adapters too.
    """
    usual = "fp32" if model.style == "hf" else None
    name = section.adapters or usual
    dtype = precision.parameters if name is None else SHORT_NAMES[name]
    return None if dtype is precision.parameters else dtype


def _is_layers(name: str, model: ModelConfig) -> bool:
    layers = layers_of(name)
    return bool(layers) and layers[-1] < model.layers


def _targets(model: ModelConfig) -> list[str]:
    """What ``targets`` may name: the model's linears, and their short names."""
    from simulator.model.decoder import Shape
    from simulator.model.families import FAMILIES

    graphs = FAMILIES[model.family](model, Shape(batch=1, seq=1, dtype=DType.BF16)).blocks
    names = {
        weight.name.removesuffix(".weight").rpartition(".")[2]
        for graph in set(graphs)
        for weight in graph.weights
        if len(weight.shape) == 2
    }
    short = [name for name, own in TARGETS.items() if names & set(own)]
    return [ALL_LINEAR, *short, *sorted(names)]


def _check_names(
    key: str, found: Iterable[str], known: Sequence[str], tree: Map, mistakes: Mistakes
) -> None:
    for name in found:
        if name not in known:
            text = f"no module {name!r}{did_you_mean(name, list(dict.fromkeys(known)))}"
            mistakes.at(tree, (*PATH, key), text)


def _check_tied(
    key: str, found: Sequence[str], model: ModelConfig, tree: Map, mistakes: Mistakes
) -> None:
    """A head that is the embedding is trained or frozen with it."""
    if model.tied and ("embed" in found) is not ("head" in found):
        text = f"the head of {model.name} is its embedding; name both embed and head, or none"
        mistakes.at(tree, (*PATH, key), text)
