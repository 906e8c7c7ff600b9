"""From ``training.optimizer:`` to the optimizer that a step runs."""

from __future__ import annotations

from typing import NamedTuple

from simulator.documents.mistakes import Mistakes
from simulator.documents.node import Map
from simulator.model.config import ModelConfig
from simulator.plan.plan import Hyper, Parallelism, Precision
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
    framework = mesh.framework if mesh else ""
    implementation = optimizer.implementation or default_implementation(name, framework)
    if (name, implementation) not in OPTIMIZERS:
        can = ", ".join(way for other, way in OPTIMIZERS if other == name)
        text = f"{name} has no {implementation} implementation; supported: {can}"
        mistakes.at(tree, (*PATH, "implementation"), text)
    refused = refusal(name, implementation, mesh.framework) if mesh else None
    if refused is not None:
        at_name = optimizer.implementation is None or name != "sgd"
        mistakes.at(tree, (*PATH, "name" if at_name else "implementation"), refused)
    return Chosen(implementation, _hyper(optimizer, model))


def check_in_backward(
    section: TrainingSection,
    grad_accum: int,
    precision: Precision | None,
    mesh: Parallelism | None,
    tree: Map,
    mistakes: Mistakes,
) -> None:
    """Its hooks leave no gradients, to clip or to add to; torchtune and torchtitan say the same."""
    if not section.optimizer.in_backward:
        return
    where = (*PATH, "in_backward")
    if mesh and mesh.framework not in ("fsdp2", "single"):
        text = f"not yet supported with {mesh.framework}; supported: fsdp2, single"
        mistakes.at(tree, where, text)
    if section.clip_grad_norm is not None:
        mistakes.at(tree, where, "leaves no gradients to clip; leave out clip_grad_norm")
    if precision is not None and precision.loss_scaling:
        mistakes.at(tree, where, "leaves no gradients to unscale; leave out loss_scaling")
    if grad_accum > 1:
        mistakes.at(tree, where, f"steps after every micro-batch, and grad_accum is {grad_accum}")


def _hyper(section: OptimizerSection, model: ModelConfig | None) -> Hyper:
    """Hugging Face's Trainer tells bitsandbytes to leave embeddings alone."""
    return Hyper(
        weight_decay=section.weight_decay,
        momentum=USUAL_MOMENTUM if section.momentum is None else section.momentum,
        amsgrad=section.amsgrad,
        embeddings_32bit=model is not None and model.style == "hf",
    )
