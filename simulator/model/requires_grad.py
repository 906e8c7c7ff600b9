"""What autograd leaves out where weights are frozen: gradients nobody asks for, and their needs.

A value requires a gradient if an input of its op does or a weight of it is trainable. A node
keeps only what the gradients that it will compute read (``GradTensor.reads``; PyTorch's
derivatives.yaml writes each formula apart, and ``should_compute_output`` asks for each), so a
frozen linear keeps nothing, and an op that no gradient passes through is no node at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from simulator.model.decoder import Decoder, Shape
from simulator.model.graph import BackwardStep, GradTensor, Graph, Op

_OF_NODES = ("saves", "borrows", "passes", "gradients", "backward", "gives")


def with_required_gradients(decoder: Decoder, shape: Shape) -> Decoder:
    """``decoder`` with the nodes that autograd makes where some of its weights are frozen.

    A gradient runs back to the first trained weight: what lies before needs none.
    """
    tuning, rest = shape.tuning, (decoder.embedding, decoder.head)
    assert tuning is not None
    whole = shape.flat and any(graph.trained for graph in rest)
    embedding = required_only(decoder.embedding, input_needs=False, whole=whole)
    reached = embedding.has_backward or shape.input_requires_grad
    made: dict[tuple[str, bool, bool], Graph] = {}
    blocks = []
    for layer, graph in enumerate(decoder.blocks):
        key = graph.name, tuning.freezes_layer(layer), reached
        if key not in made:
            made[key] = _block(graph, frozen=key[1], reached=reached, flat=shape.flat)
        blocks.append(made[key])
        reached = blocks[-1].has_backward
    head = required_only(decoder.head, input_needs=reached, whole=whole)
    part = decoder.loss_part
    if part.projects:
        needs = reached or head.has_backward
        part = replace(part, graph=required_only(part.graph, input_needs=needs))
    return replace(decoder, embedding=embedding, blocks=tuple(blocks), head=head, loss_part=part)


def _block(graph: Graph, *, frozen: bool, reached: bool, flat: bool) -> Graph:
    """One layer's graph, under a name of its own where it differs from the others."""
    name = f"{graph.name}{' frozen' * frozen}{' first' * (not reached)}"
    weights = graph.weights
    if frozen:
        weights = tuple(replace(weight, trainable=False) for weight in weights)
    named = replace(graph, name=name, weights=weights)
    return required_only(named, input_needs=reached, whole=flat and bool(named.trained))


def required_only(graph: Graph, *, input_needs: bool, whole: bool = False) -> Graph:
    """``graph`` with the nodes that autograd makes; ``input_needs``: its input requires a gradient.

    A graph whose weights are all trained and whose input needs a gradient is returned as it is.
    ``whole``: its weights require gradients, trained or not.
    """
    trainable = frozenset(weight.name for weight in graph.weights if weight.trainable or whole)
    if (input_needs or graph.input is None) and len(trainable) == len(graph.weights):
        return graph
    required: set[int | None] = {graph.input} if input_needs and graph.input is not None else set()
    ops = []
    for op in graph.ops:
        named = (*(made.weight for made in op.gradients), *(each.weight for each in op.gives))
        asked = trainable & set(named)
        fed = {*op.inputs, *(given.value for given in op.gives)}
        if asked or op.accumulates in trainable or required & fed - {None}:
            required.update(op.outputs)
            ops.append(_node(op, required, trainable))
        else:
            nothing: dict[str, Any] = dict.fromkeys(_OF_NODES, ())
            ops.append(replace(op, **nothing))
    return replace(graph, ops=tuple(ops))


def _node(op: Op, required: set[int | None], trainable: frozenset[str]) -> Op:
    """One node with the gradients that are asked for alone."""

    def needed(made: GradTensor) -> bool:
        target = made.target
        known = required if isinstance(target, int) else trainable
        return target is None or target in known

    wanted = [needed(made) for made in op.gradients]
    gradients, backward = _steps(op, wanted)
    asked = [made for made in gradients if made.value is not None or made.weight is not None]
    read = {*op.saves, *op.borrows}
    if all(made.reads is not None for made in asked):
        read = {value for made in asked for value in made.reads or ()}
    return replace(
        op,
        passes=tuple(value for value in op.passes if value in required),
        gives=tuple(
            each for each in op.gives if each.value in required or each.weight in trainable
        ),
        gradients=gradients,
        backward=backward,
        saves=tuple(value for value in op.saves if value in read),
        borrows=tuple(value for value in op.borrows if value in read),
    )


def _steps(
    op: Op, wanted: Sequence[bool]
) -> tuple[tuple[GradTensor, ...], tuple[BackwardStep, ...]]:
    """The gradients that are made, and the kernels that make them, numbered anew.

    A kernel that makes several gradients at once (``BackwardStep.whole``) makes those that nobody
    wants too, and they go when it returns.
    """
    numbers: dict[int, int] = {}
    gradients: list[GradTensor] = []
    steps: list[BackwardStep] = []
    for step in op.backward:
        some = any(wanted[number] for number in step.outputs)
        made = [n for n in step.outputs if wanted[n] or (some and step.whole)]
        if not made:
            continue
        for number in made:
            numbers[number] = len(gradients)
            known = op.gradients[number]
            gradients.append(known if wanted[number] else replace(known, value=None, weight=None))
        unwanted = tuple(number for number in made if not wanted[number])
        frees = (*step.frees, *unwanted)
        steps.append(
            replace(
                step,
                outputs=tuple(numbers[number] for number in made),
                frees=tuple(numbers[number] for number in frees if number in numbers),
            )
        )
    return tuple(gradients), tuple(steps)
