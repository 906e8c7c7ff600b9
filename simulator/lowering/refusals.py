"""Plans that are not lowered, each by name."""

from __future__ import annotations

from simulator.errors import UnsupportedError
from simulator.lowering.framework import FRAMEWORKS
from simulator.lowering.optimizer import OPTIMIZERS
from simulator.lowering.units import wrapped_sorts
from simulator.model.decoder import Decoder
from simulator.plan.plan import FP8_ROWWISE, Plan


def check_loss(decoder: Decoder, plan: Plan) -> None:
    """Whether the loss goes with the framework and with how it wraps the model.

    torchtune calls the head once a chunk; the hooks of a group with two modules, norm and head,
    then run at other times than these units know.

    Raises:
        UnsupportedError: it does not.
    """
    parallelism, loss = plan.parallelism, plan.training.loss
    if decoder.loss_part.projects and parallelism.framework not in ("fsdp2", "single"):
        trained = decoder.embedding.trained or decoder.head.trained
        whose = f"under {parallelism.framework}"
        if parallelism.framework != "fsdp1":
            raise UnsupportedError(f"loss {loss!r} is not supported {whose}")
        if trained:
            raise UnsupportedError(f"loss {loss!r} is not supported {whose} with a trained head")
    if decoder.loss_part.projects and plan.training.precision.loss_scaling:
        raise UnsupportedError(f"loss {loss!r} is not supported with loss scaling")
    apart = "head" in wrapped_sorts(parallelism.fsdp.wrap, decoder)
    if loss == "chunked" and apart and decoder.loss_part.projects:
        raise UnsupportedError(
            "chunked calls the head once a chunk, which is not yet supported with transformers' "
            "head in an FSDP unit of its own; supported: fsdp.wrap: block or none, or loss: "
            "chunked-head"
        )


def refuse_unknown(decoder: Decoder, plan: Plan) -> None:
    """What of a plan this version does not lower.

    Raises:
        UnsupportedError: it names what.
    """
    check_loss(decoder, plan)
    training, parallelism = plan.training, plan.parallelism
    choice = training.optimizer_choice
    for what, asked, known in (
        ("framework", parallelism.framework, FRAMEWORKS),
        ("optimizer", choice, OPTIMIZERS),
    ):
        if asked not in known:
            shown = asked if isinstance(asked, str) else " ".join(asked)
            raise UnsupportedError(f"{what} {shown!r} is not yet supported")
    precision = training.precision
    tuned = training.fine_tuning or precision.autocast
    if precision.fp8 == FP8_ROWWISE and training.compile == "none":
        raise UnsupportedError("fp8: rowwise is modelled of compiled blocks alone")
    whole = training.activation_checkpointing != "megatron-selective"
    if training.checkpoint_offload and not (whole and training.compile == "none"):
        text = "offloaded checkpoints of parts or of compiled blocks are not yet supported"
        raise UnsupportedError(text)
    mixed = any(op.kind == "topk" for op in decoder.blocks[0].ops)
    returning = training.mask != "none" or any(graph.returns for graph in decoder.blocks)
    if training.compile != "none" and returning:
        text = "compile with padding or with blocks that return their probabilities (mpt)"
        raise UnsupportedError(f"{text} is not yet supported")
    if training.compile != "none" and (tuned or mixed):
        text = "compile with fine_tuning, autocast or mixtures of experts is not yet supported"
        raise UnsupportedError(text)
    apart = wrapped_sorts(parallelism.fsdp.wrap, decoder) & {"embedding", "head"}
    if apart and any(weight.tied for weight in decoder.head.weights):
        raise UnsupportedError("tied embeddings cannot be in two FSDP groups: use wrap: block")
    if parallelism.world_size != parallelism.dp_shard * parallelism.dp_replicate:
        raise UnsupportedError("mesh axes other than dp_shard, dp_replicate are not yet supported")
