"""Defaults that depend on the version of a library: one dict, each with what changed it."""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, int]

OLDEST_TORCH: Version = (2, 4)
"""FSDP2 (``torch.distributed._composable.fsdp.fully_shard``) came with it."""

OLDEST_DATE = "2024-07-24"
"""The day of that release; before it FSDP2 was in nightlies alone."""

NEWEST_TORCH: Version = (2, 14)
"""The newest release whose FSDP2 was read for the rules below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """What the job runs on. ``as_of``: the first day of a date that picks what is not named.

    None means the newest that dryfit knows.
    """

    as_of: str | None = None
    torch: Version | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The default ``before`` a change and ``since`` it.

    ``torch``: the first release with the change, or the first one released after it where another
    library changed; ``date``: when that was; ``change``: who changed what.
    """

    before: str | bool
    since: str | bool
    torch: Version
    date: str
    change: str

    def value(self, software: Software) -> str | bool:
        """The default under ``software``; a named version decides before a date does."""
        return self.before if self.is_before(software) else self.since

    def is_before(self, software: Software) -> bool:
        """Whether ``software`` is older than the change."""
        if software.torch is not None:
            return software.torch < self.torch
        return software.as_of is not None and software.as_of < self.date


RULES: dict[str, Rule] = {
    "model.rms_norm": Rule(
        before="composite",
        since="fused",
        torch=(2, 9),
        date="2025-10-15",
        change="torch 2.9: aten::_fused_rms_norm on CUDA",
    ),
    "parallelism.fsdp.wrap": Rule(
        before="block",
        since="torchtitan",
        torch=(2, 6),
        date="2025-01-01",
        change="torchtitan 2025: embedding and [norm, head] in units of their own",
    ),
    "parallelism.fsdp.reshard_last_block": Rule(
        before=False,
        since=True,
        torch=(2, 6),
        date="2025-01-01",
        change="torchtitan 2025: the last block reshards after forward too",
    ),
    "training.loss": Rule(
        before="eager-kept-logits",
        since="eager",
        torch=(2, 5),
        date="2024-08-01",
        change="torchtitan 2024: the loop drops the logits before backward",
    ),
}
"""Defaults, by dotted key of the scenario.

That of torchtitan's logits lies between the runs of its PR #165 (May 2024), 4 B a logit higher, and
those of December 2024; the day is not known. Before it, its model cast the logits to fp32 as well.
"""


EXPANDABLE = "expandable_segments:True"
"""The allocator's other mode, as ``PYTORCH_CUDA_ALLOC_CONF`` writes it."""

LAUNCHERS: dict[str, Rule | str | None] = {
    "torchtitan": Rule(
        before="",
        since=EXPANDABLE,
        torch=(2, 6),
        date="2024-10-22",
        change="torchtitan 2024-10-22: its run script exports expandable_segments:True",
    ),
    "torchrun": "",
    "accelerate": "",
    "deepspeed": "",
    "slurm": None,
}
"""Settings of PyTorch's allocator that each launcher leaves; None: the job's own script decides."""

TORCHTUNE_NORM = Rule(
    before="narrow",
    since="composite",
    torch=(2, 6),
    date="2024-12-20",
    change="torchtune 0.5: RMSNorm calls F.rms_norm in fp32",
)
"""Where torchtune's RMSNorm casts: before it weighs (narrow) or after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fsdp2Rules:
    """What FSDP2 does to its buffers: each differs between releases, see ``FSDP2``.

    ``keeps_reduce_input``: the input of a reduce-scatter is of the compute stream and stays until
    the next one; else it is of the reduce-scatter's stream and goes when that is issued.
    ``casts_together``: shards are cast into one buffer, else into one each. ``retains_all_reduce``:
    a replica's sum in the reduced dtype stays until backward ends. ``gathers_alone``: a rank that
    shards with no other gathers like any. ``records_streams``: NCCL's process group marks what it
    sends and receives for its own stream, so that a freed block stays active until that has passed.
    """

    keeps_reduce_input: bool = True
    casts_together: bool = True
    retains_all_reduce: bool = True
    gathers_alone: bool = False
    records_streams: bool = False


NEWEST_FSDP2 = Fsdp2Rules()

FSDP2: dict[str, Rule] = {
    "keeps_reduce_input": Rule(
        before=False,
        since=True,
        torch=(2, 5),
        date="2024-10-17",
        change="torch 2.5: ReduceScatterState; its input is allocated on the current stream",
    ),
    "casts_together": Rule(
        before=False,
        since=True,
        torch=(2, 5),
        date="2024-10-17",
        change="torch 2.5: _get_param_all_gather_inputs casts by one foreach copy",
    ),
    "retains_all_reduce": Rule(
        before=False,
        since=True,
        torch=(2, 6),
        date="2025-01-29",
        change="torch 2.6: AllReduceState (pytorch#140044)",
    ),
    "gathers_alone": Rule(
        before=True,
        since=False,
        torch=(2, 9),
        date="2025-10-15",
        change="torch 2.9: world size 1 copies its shards instead of gathering them",
    ),
    "records_streams": Rule(
        before=True,
        since=False,
        torch=(2, 8),
        date="2025-08-06",
        change="torch 2.8: ProcessGroupNCCL keeps tensors on a shelf (TensorShelf)",
    ),
}
"""Lifetimes of FSDP2's buffers, by field of ``Fsdp2Rules``.

Read in each release from 2.4 to 2.14: torch/distributed/_composable/fsdp/ until 2.5, since then
torch/distributed/fsdp/_fully_shard/, in ``_fsdp_collectives.py`` and ``_fsdp_param_group.py``;
the last in ProcessGroupNCCL.hpp.
"""

FSDP2_CAN: dict[str, Rule] = {
    "several modules in one unit": Rule(
        before=False,
        since=True,
        torch=(2, 5),
        date="2024-10-17",
        change="torch 2.5: fully_shard takes a list of modules",
    ),
    "set_modules_to_forward_prefetch": Rule(
        before=False,
        since=True,
        torch=(2, 5),
        date="2024-10-17",
        change="torch 2.5: set_modules_to_forward_prefetch",
    ),
    "frozen parameters of another dtype": Rule(
        before=False,
        since=True,
        torch=(2, 8),
        date="2025-08-06",
        change="torch 2.8: one dtype is asked of a unit's trained parameters only",
    ),
}
"""What ``fully_shard`` refused before a release."""

UNMODELLED: dict[str, Rule] = {
    "a unit without trained parameters keeps the last reduce-scatter's input": Rule(
        before=True,
        since=False,
        torch=(2, 12),
        date="2026-05-13",
        change="torch 2.12: post_backward recycles inputs before it looks for gradients",
    ),
    "what backward gathered for frozen units stays through the optimizer": Rule(
        before=True,
        since=False,
        torch=(2, 6),
        date="2025-01-29",
        change="torch 2.6: finalize_backward drops a gathering that was for nothing",
    ),
}
"""What releases did with frozen units that the simulation doesn't follow."""


def fsdp2_rules(software: Software) -> Fsdp2Rules:
    """How long FSDP2's buffers live under ``software``.

    >>> fsdp2_rules(Software(torch=(2, 4))).keeps_reduce_input
    False
    >>> fsdp2_rules(Software()) == Fsdp2Rules()
    True
    """
    return Fsdp2Rules(**{name: bool(rule.value(software)) for name, rule in FSDP2.items()})


LIGER_SUMS_APART = ("2025-08-22", "2026-09-16")
"""From liger-kernel 0.6.2 until 0.8.3 its fused linear loss made weight gradients apart."""


def liger_sums_apart(software: Software) -> bool:
    """Whether Liger's fused linear loss makes each chunk's weight gradient apart."""
    since, until = LIGER_SUMS_APART
    return software.as_of is not None and since <= software.as_of < until


def default_of(key: str, software: Software) -> tuple[str | bool, str]:
    """The default of a key, and the words that say where it comes from.

    >>> default_of("model.rms_norm", Software(torch=(2, 6)))
    ('composite', 'before torch 2.9: aten::_fused_rms_norm on CUDA')
    >>> default_of("model.rms_norm", Software())
    ('fused', 'default')
    """
    rule = RULES[key]
    word = f"before {rule.change}" if rule.is_before(software) else "default"
    return rule.value(software), word
