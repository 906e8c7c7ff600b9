from hypothesis import given
from hypothesis import strategies as st
from simpy import Environment, Timeout

from simulator.engine.activity import Activity


def end_of(env, activity):
    """Wait as a process does, then run on past all that is void."""
    ended = []

    def wait():
        yield activity.ends
        ended.append(env.now)

    env.process(wait())
    env.run()
    return ended


def at(env, time, do):
    Timeout(env, time).callbacks.append(lambda _: do())


def test_ends_after_work_over_rate_rounded_up():
    env = Environment()
    assert end_of(env, Activity(env, 101, 10)) == [11]


def test_slower_then_faster():
    """100 at 10 a ns: 50 done by 5, 20 more at 2 by 15, the last 30 at 10 by 18."""
    env = Environment()
    activity = Activity(env, 100, 10)
    at(env, 5, lambda: activity.change(2))
    at(env, 15, lambda: activity.change(10))
    assert end_of(env, activity) == [18]


def test_a_change_and_back_at_one_instant_changes_nothing():
    env = Environment()
    activity = Activity(env, 101, 10)
    at(env, 3, lambda: (activity.change(3), activity.change(10)))
    assert end_of(env, activity) == [11]


def test_a_change_at_the_very_end_wakes_once():
    env = Environment()
    activity = Activity(env, 100, 10)
    at(env, 10, lambda: activity.change(1))
    assert end_of(env, activity) == [10]


ARRIVALS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 30)), max_size=8).map(sorted)


@given(st.integers(0, 60), ARRIVALS)
def test_work_that_arrives_is_done_in_order(work, arrivals):
    """At one unit a ns the end is that of kernel after kernel; what is left over is starved."""
    env = Environment()
    activity = Activity(env, work, 1, arrivals)
    end, starved = work, 0
    for time, more in arrivals:
        starved += max(0, time - end)
        end = max(end, time) + more
    assert end_of(env, activity) == [end]
    activity.settle()
    assert activity.starved == starved
    assert end - starved == work + sum(more for _, more in arrivals)


@given(st.integers(0, 60), ARRIVALS, st.lists(st.integers(0, 90), max_size=5))
def test_settling_in_between_changes_nothing(work, arrivals, times):
    env = Environment()
    plain, settled = Activity(env, work, 3, arrivals), Activity(env, work, 3, arrivals)
    for time in times:
        at(env, time, settled.settle)
        at(env, time, lambda: (settled.change(7), settled.change(3)))
    expected = plain._end()
    ends = end_of(env, settled)
    assert ends == [expected]
