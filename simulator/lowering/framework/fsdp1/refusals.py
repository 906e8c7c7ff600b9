"""What of a plan FSDP1 cannot run, or not yet here."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.errors import UnsupportedError
from simulator.lowering.framework.fsdp1.flat import FlatParameter
from simulator.lowering.framework.fsdp1.parameters import Parameters
from simulator.lowering.units import PEFT, Unit
from simulator.plan.plan import Plan


def refuse(plan: Plan, units: Sequence[Unit], parameters: Parameters) -> None:
    """Raises:
    UnsupportedError: it names the nearest that runs.
    """
    fsdp, training = plan.parallelism.fsdp, plan.training
    for asked, text in (
        (plan.parallelism.dp_shard == 1, "with dp_shard: 1 (its NO_SHARD); use ddp or single"),
        (units[-1].kind.wrapped, "with norm and head in one unit; use wrap: block"),
        (plan.offload_parameters, "with parameters on the host; use fsdp2"),
        (
            fsdp.use_orig_params and not all(u.kind.wrapped for u in units[1:-1]),
            "with use_orig_params where the root holds blocks; use wrap: block, "
            "or use_orig_params: false",
        ),
        (
            training.fine_tuning is not None and fsdp.forward_prefetch > 0,
            "with frozen weights and forward_prefetch; use forward_prefetch: 0",
        ),
        (
            any(u.kind.reentrant for u in units) and fsdp.forward_prefetch > 0,
            "with re-entrant checkpoints and forward_prefetch; use forward_prefetch: 0",
        ),
        (
            fsdp.wrap == PEFT and fsdp.backward_prefetch == "post",
            "with wrap: peft and backward_prefetch: post; use backward_prefetch: pre",
        ),
        (
            fsdp.wrap == PEFT and parameters.root.trained,
            "with wrap: peft and what is trained outside the blocks; use wrap: block",
        ),
        (
            not fsdp.use_orig_params and any(map(_mixed, parameters.everyone())),
            "with trained and frozen weights in one flat parameter, which PyTorch refuses "
            "where use_orig_params is false; use wrap: peft, or use_orig_params: true",
        ),
    ):
        if asked:
            raise UnsupportedError(f"fsdp1 is not yet supported {text}")


def _mixed(parameter: FlatParameter) -> bool:
    return len({member.weight.trainable for member in parameter.members}) > 1
