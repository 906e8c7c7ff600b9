"""What cannot be played says why."""

import pytest

from simulator.engine import play
from simulator.errors import DeadlockError, ProgramError
from simulator.program.instructions import HostWait, Record, Wait
from tests.engine.worlds import AG, RS, C, collective, launch, prices, program, together

GATHER = collective(100, AG, name="gather.*")


def stuck(*programs):
    with pytest.raises(DeadlockError) as caught:
        play(together(*programs), prices())
    return str(caught.value).splitlines()[1:]


def test_a_member_that_never_comes():
    waiting = (GATHER, Record(0, AG), Wait(0, C), launch(1))
    assert stuck(program(waiting), program((launch(1),)), program((GATHER,))) == [
        "  class 0, stream default: waits for 'gather.*' on stream all_gather",
        "  class 0, stream all_gather: all_gather 'gather.*' of group dp_shard waits for class 1",
        "  class 2, stream all_gather: all_gather 'gather.*' of group dp_shard waits for class 1",
    ]


def test_a_host_that_never_gets_on():
    waiting = (GATHER, Record(0, AG), HostWait(0), launch(1))
    assert stuck(program(waiting), program(())) == [
        "  class 0, host thread: waits for 'gather.*' on stream all_gather",
        "  class 0, stream default: waits for the host thread",
        "  class 0, stream all_gather: all_gather 'gather.*' of group dp_shard waits for class 1",
    ]


def test_groups_entered_in_opposite_orders():
    shard, replicate = collective(1, RS, "dp_shard"), collective(1, RS, "dp_replicate")
    lines = stuck(program((shard, replicate)), program((replicate, shard)))
    assert [line.split(": ")[1] for line in lines] == [
        "all_gather 'all_gather' of group dp_shard waits for class 1",
        "all_gather 'all_gather' of group dp_replicate waits for class 0",
    ]


def test_a_long_story_is_cut_short():
    lines = stuck(*[program((GATHER,))] * 20, program(()))
    assert len(lines) == 13
    assert lines[-1] == "  and 8 more"


@pytest.mark.parametrize("other", [{"size": 200}, {"size": 100, "kind": "all_reduce"}])
def test_members_that_issue_different_collectives(other):
    mine = collective(100, AG, name="gather.3")
    theirs = collective(stream=AG, name="another", **other)
    with pytest.raises(ProgramError) as caught:
        play(together(program((mine,)), program((theirs,))), prices())
    kind = other.get("kind", "all_gather")
    assert str(caught.value) == (
        f"group dp_shard: class 1 issues {kind} 'another' of {other['size']} B "
        "where class 0 issues all_gather 'gather.3' of 100 B"
    )
