"""From ``training.optimizer:`` to the optimizer that a step runs."""

from __future__ import annotations

from typing import NamedTuple

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map
from simulator.model.config import ModelConfig
from simulator.plan.plan import Hyper, Parallelism
from simulator.scenario.schema import OptimizerSection, TrainingSection

PATH = ("training", "optimizer")
USUAL_MOMENTUM = 0.9


class Chosen(NamedTuple):
    """How an optimizer runs, and with what."""

    implementation: str
    hyper: Hyper


def resolve_optimizer(
    section: TrainingSection,
    model: ModelConfig | None,
    mesh: Parallelism | None,
    tree: Map,
    mistakes: Mistakes,
) -> Chosen:
    """The implementation that is asked for, or the optimizer's own default."""
    from simulator.lowering.optimizer import OPTIMIZERS, default_implementation, refusal

    optimizer = section.optimizer
    name = optimizer.name
    implementation = optimizer.implementation or default_implementation(name)
    if (name, implementation) not in OPTIMIZERS:
        can = ", ".join(way for other, way in OPTIMIZERS if other == name)
        text = f"{name} has no {implementation} implementation; supported: {can}"
        mistakes.at(tree, (*PATH, "implementation"), text)
    refused = refusal(name, implementation, mesh.framework) if mesh else None
    if refused is not None:
        at_name = optimizer.implementation is None or name != "sgd"
        mistakes.at(tree, (*PATH, "name" if at_name else "implementation"), refused)
    return Chosen(implementation, _hyper(optimizer, model))


def _hyper(section: OptimizerSection, model: ModelConfig | None) -> Hyper:
    """Hugging Face's Trainer tells bitsandbytes to leave embeddings alone."""
    return Hyper(
        weight_decay=section.weight_decay,
        momentum=USUAL_MOMENTUM if section.momentum is None else section.momentum,
        amsgrad=section.amsgrad,
        embeddings_32bit=model is not None and model.style == "hf",
    )
