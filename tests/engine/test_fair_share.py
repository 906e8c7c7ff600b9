from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.fair_share import alone, fair_share

CAPACITY = st.integers(10**9, 10**12)
LINKS = 5


@st.composite
def systems(draw):
    capacities = draw(st.lists(CAPACITY, min_size=LINKS, max_size=LINKS))
    flow = st.dictionaries(st.integers(0, LINKS - 1), st.integers(1, 8), min_size=1)
    flows = draw(st.lists(flow, min_size=1, max_size=6))
    return capacities, [tuple(f.items()) for f in flows]


def water_filling(capacities, flows):
    """The same in exact fractions, raising all rates to the next full link at a time."""
    rates = [Fraction(0)] * len(flows)
    rising = set(range(len(flows)))
    while rising:
        steps = {}
        for link, capacity in enumerate(capacities):
            load = sum(dict(flows[f]).get(link, 0) for f in rising)
            used = sum(dict(flow).get(link, 0) * rates[f] for f, flow in enumerate(flows))
            if load:
                steps[link] = (capacity - used) / load
        step = min(steps.values())
        for f in rising:
            rates[f] += step
        full = {link for link, s in steps.items() if s == step}
        rising -= {f for f in rising if full & dict(flows[f]).keys()}
    return rates


@given(systems())
def test_is_exact_water_filling_to_the_last_bytes(system):
    for rate, exact in zip(fair_share(*system), water_filling(*system), strict=True):
        assert abs(rate - exact) <= exact * Fraction(1, 10**6)


@given(systems())
def test_no_link_overflows_and_each_flow_has_a_bottleneck(system):
    """The certificate of max-min fairness: a full link on which no flow is faster."""
    capacities, flows = system
    rates = fair_share(*system)
    used = [
        sum(dict(flow).get(link, 0) * rate for flow, rate in zip(flows, rates, strict=True))
        for link in range(LINKS)
    ]
    assert all(u <= c for u, c in zip(used, capacities, strict=True))
    for flow, rate in zip(flows, rates, strict=True):
        assert any(
            used[link] >= capacities[link] * (1 - 1e-6)
            and all(
                other <= rate * (1 + 1e-6)
                for users, other in zip(flows, rates, strict=True)
                if link in dict(users)
            )
            for link, _ in flow
        )


@given(systems(), st.integers(2, 5))
def test_flows_that_are_alike_fold_without_any_rounding(system, copies):
    """n copies of a system on n times its links, or on its links with n times the weight."""
    capacities, flows = system
    unfolded = fair_share(capacities, [flow for flow in flows for _ in range(copies)])
    folded = fair_share(capacities, [[(link, w * copies) for link, w in flow] for flow in flows])
    assert unfolded[::copies] == folded
    assert all(len(set(unfolded[i : i + copies])) == 1 for i in range(0, len(unfolded), copies))


@given(systems(), st.randoms())
def test_depends_on_no_order(system, random):
    capacities, flows = system
    order = list(range(len(flows)))
    random.shuffle(order)
    shuffled = fair_share(capacities, [flows[i] for i in order])
    assert [shuffled[order.index(i)] for i in range(len(flows))] == fair_share(capacities, flows)


@given(systems(), st.permutations(range(LINKS)))
def test_links_that_fill_together_freeze_together(system, names):
    """Else rounding would depend on which of them is looked at first."""
    capacities, flows = system
    level = [min(capacities)] * LINKS
    renamed = [[(names[link], weight) for link, weight in flow] for flow in flows]
    assert fair_share(level, renamed) == fair_share(level, flows)


def test_two_links_that_fill_at_one_level():
    """100 on each of two links for 3 flows, one of them on both: 33 each, not 33, 33, 34."""
    assert fair_share([100, 100], [[(0, 1)], [(0, 1)], [(0, 1), (1, 1)], [(1, 2)]]) == [33] * 4


@given(systems())
def test_alone(system):
    capacities, flows = system
    assert [alone(capacities, flow) for flow in flows] == [
        fair_share(capacities, [flow])[0] for flow in flows
    ]
