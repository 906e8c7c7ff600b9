"""What FSDP2's buffers cost in older releases of torch, by arithmetic on the sources' lifetimes."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import pytest

from simulator.lowering.lower import decoder_of, lower
from simulator.memory.ledger import replay
from simulator.plan.plan import Fsdp
from simulator.plan.versions import FSDP2, NEWEST_TORCH, OLDEST_TORCH, Fsdp2Rules, Software
from simulator.plan.versions import fsdp2_rules as rules_of
from simulator.program.instructions import Alloc, Category, Collective, Stream, rounded
from simulator.program.program import Program
from simulator.program.verify import verify
from tests.recorded import MODELS, model_and_plan, runs

MODEL = MODELS["titan:debug"]
HIDDEN, FFN, LAYERS = MODEL.hidden, MODEL.ffn, MODEL.layers
HEADS = (MODEL.heads + 2 * MODEL.kv_heads) * (HIDDEN // MODEL.heads)
BLOCK = HIDDEN * HEADS + HIDDEN * HIDDEN + 3 * HIDDEN * FFN + 2 * HIDDEN
"""Parameters of one block: q, k and v; the output; the MLP; two norms."""

RELEASES = [(2, minor) for minor in range(OLDEST_TORCH[1], NEWEST_TORCH[1] + 1)]


def program(
    release: tuple[int, int], *, shards: int = 8, replicas: int = 1, **set_: str
) -> Program:
    """Two steps of the small model under the rules of a release, every block in a unit."""
    model, plan = model_and_plan(runs()["debug_ws8"]["config"] | {"opt": "adamw_fused"} | set_)
    plan = replace(
        plan,
        parallelism=replace(
            plan.parallelism,
            dp_shard=shards,
            dp_replicate=replicas,
            fsdp=Fsdp(wrap=("tok_embeddings", "layers.*"), rules=rules_of(Software(torch=release))),
        ),
    )
    return lower(decoder_of(model, plan), plan, 2)


def live_at(mark: str, found: Program) -> int:
    """Live bytes where a mark is met first."""
    return next(each.allocated for each in replay(found).marks if each.mark == mark)


def test_every_row_is_a_field_and_changes_it() -> None:
    assert set(FSDP2) == {field.name for field in fields(Fsdp2Rules)}
    for name, rule in FSDP2.items():
        assert rule.before is not rule.since
        since = rules_of(Software(torch=rule.torch))
        assert getattr(since, name) is rule.since
    assert rules_of(Software()) == rules_of(Software(torch=NEWEST_TORCH)) == Fsdp2Rules()


def test_a_date_picks_the_release_of_that_day() -> None:
    for rule in FSDP2.values():
        assert rules_of(Software(as_of=rule.date)) == rules_of(Software(torch=rule.torch))


@pytest.mark.parametrize("shards", [1, 8])
@pytest.mark.parametrize("release", RELEASES)
def test_programs_of_every_release_keep_the_rules(release: tuple[int, int], shards: int) -> None:
    for replicas in (1, 2):
        found = program(release, shards=shards, replicas=replicas, reduce_dtype="bf16")
        verify(found)
        assert live_at("opt_done", found) == live_at("opt_done", program((2, 13), shards=shards))


def test_until_2_5_the_reduce_scatters_input_goes_with_the_call() -> None:
    """Since then the last unit's fp32 input is alive at the end of its hook."""
    last = f"post_bwd.end:layers.{LAYERS - 1}"
    difference = live_at(last, program((2, 5))) - live_at(last, program((2, 4)))
    assert difference == rounded(4 * BLOCK)


def allocs(found: Program) -> list[Alloc]:
    """What each distinct block allocates."""
    return [i for block in found.blocks for i in block.instructions if isinstance(i, Alloc)]


def inputs(found: Program) -> list[Alloc]:
    """The allocations of reduce-scatter inputs."""
    return [each for each in allocs(found) if each.tensor.name == "reduce_input"]


def test_until_2_5_the_input_is_of_the_reduce_scatters_stream() -> None:
    assert {each.stream for each in inputs(program((2, 4)))} == {Stream.REDUCE_SCATTER}
    assert {each.stream for each in inputs(program((2, 5)))} == {Stream.COMPUTE}


def test_since_2_6_replicas_keep_what_they_reduced_in_bf16() -> None:
    """Each of the blocks holds its bf16 shard until backward ends."""
    mark = "post_bwd.end:layers.0"
    kept, free = (
        live_at(mark, program(release, shards=4, replicas=2, reduce_dtype="bf16"))
        for release in ((2, 6), (2, 5))
    )
    assert kept - free == LAYERS * rounded(2 * BLOCK // 4)


def test_until_2_9_a_rank_alone_gathers_into_a_buffer_too() -> None:
    """Forward holds the bf16 buffer beside the copies; no collective is issued."""
    mark = "pre_fwd.end:layers.1"
    old, new = program((2, 8), shards=1), program((2, 9), shards=1)
    assert live_at(mark, old) - live_at(mark, new) == rounded(2 * BLOCK)
    assert not [i for b in old.blocks for i in b.instructions if isinstance(i, Collective)]


def test_until_2_5_each_shard_is_cast_into_a_tensor_of_its_own() -> None:
    def casts(release: tuple[int, int]) -> list[int]:
        tensors = [each.tensor for each in allocs(program(release))]
        found = [t for t in tensors if t.category is Category.ALL_GATHER and "cast" in t.name]
        return [each.requested for each in found]

    alone, together = casts((2, 4)), casts((2, 5))
    assert sum(alone) == sum(together)
    assert len(alone) > 3 * len(together)


def test_allocated_never_shrinks_with_a_release_for_plain_shards() -> None:
    """What 2.5 added is still there."""
    peaks = [max(p.allocated for p in replay(program(release)).phases) for release in RELEASES]
    assert all(before <= after for before, after in pairwise(peaks))
