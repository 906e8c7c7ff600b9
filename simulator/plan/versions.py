"""Defaults that depend on the version of a library: one dict, each with what changed it."""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, int]

OLDEST_TORCH: Version = (2, 4)
"""FSDP2 (``torch.distributed._composable.fsdp.fully_shard``) came with it."""


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
}
"""By dotted key of the scenario."""


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
