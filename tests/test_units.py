from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import UnitError
from simulator.units import (
    format_bytes,
    format_flops,
    format_rate,
    format_time,
    parse_bytes,
    parse_flops,
    parse_power,
    parse_rate,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512 B", 512),
        ("0 GiB", 0),
        ("1 kB", 1000),
        ("1 KiB", 1024),
        ("25MiB", 25 * 2**20),
        ("80 GB", 80 * 10**9),
        ("80 GiB", 80 * 2**30),
        ("82.4 GiB", 88476326298),  # 82.4 * 2**30 = 88476326297.6
        ("2 TB", 2 * 10**12),
        ("1.5e3 MB", 1_500_000_000),
    ],
)
def test_sizes_are_whole_bytes(text: str, size: int) -> None:
    found = parse_bytes(text)
    assert found == size
    assert isinstance(found, int)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_rate, "3.35 TB/s", 3.35e12),
        (parse_rate, "400 Gbit/s", 50e9),
        (parse_rate, "1 GiB/s", 2.0**30),
        (parse_flops, "989 TFLOP/s", 989e12),
        (parse_time, "2 us", 2e-6),
        (parse_time, "2 µs", 2e-6),
        (parse_time, "250 ms", 0.25),
        (parse_time, "2.92 s", 2.92),
        (parse_time, "3 min", 180.0),
        (parse_time, "2 h", 7200.0),
        (parse_time, "60 d", 5184000.0),
        (parse_power, "700 W", 700.0),
        (parse_power, "0.7 kW", 700.0),
    ],
)
def test_rates_times_and_powers(parse: Callable[[str], float], text: str, value: float) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (parse_bytes, "80", ["unit is missing", "80 GiB"]),
        (parse_bytes, "80 G", ["ambiguous", "GB", "GiB"]),
        (parse_bytes, "80 Gb", ["unknown unit", "did you mean GB?"]),
        (parse_bytes, "80 gib", ["unknown unit", "did you mean GiB?"]),
        (parse_bytes, "80 GB/s", ["unknown unit"]),
        (parse_bytes, "-1 GiB", ["negative"]),
        (parse_bytes, "", ["write a number and a unit"]),
        (parse_bytes, "many GiB", ["write a number and a unit"]),
        (parse_bytes, "1e99 GiB", ["out of range", "too large"]),
        (parse_bytes, "1e999999999 GiB", ["1e999999999 GiB", "out of range"]),
        (parse_rate, "1e400 GB/s", ["out of range: too large for a data rate"]),
        (parse_rate, "1e-400 GB/s", ["out of range: too small for a data rate"]),
        (parse_time, f"1e{'9' * 9000} s", ["out of range: too large for a time"]),
        (parse_time, "1e24 d", ["out of range: too large for a time"]),
        (parse_bytes, "9" * 5000, ["is no size"]),
        (parse_bytes, "nan GiB", ["is no size"]),
        (parse_bytes, "٣ GiB", ["is no size"]),
        (parse_rate, "400 Gb/s", ["ambiguous", "Gbit/s", "GB/s"]),
        (parse_rate, "400 Gbps", ["ambiguous", "Gbit/s", "GB/s"]),
        (parse_rate, "50 GB", ["did you mean GB/s?"]),
        (parse_flops, "989 TFLOPS", ["did you mean TFLOP/s?"]),
        (parse_time, "3 sec", ["unknown unit", "allowed", "min"]),
        (parse_power, "700", ["unit is missing", "700 W"]),
    ],
)
def test_refusals_say_what_is_allowed(
    parse: Callable[[str], float], text: str, words: list[str]
) -> None:
    with pytest.raises(UnitError) as caught:
        parse(text)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_written_as_people_write_them() -> None:
    assert format_bytes(80 * 2**30) == "80.00 GiB"
    assert format_bytes(2 * 10**9, "GB", 1) == "2.0 GB"
    assert format_bytes(0, decimals=None) == "0 B"
    assert format_time(0.0) == "0 ns"
    assert format_time(0.9996) == "1 s"
    assert format_time(90) == "90 s"
    assert format_time(150) == "2.5 min"
    assert format_time(3 * 86400) == "3 d"
    assert format_rate(3.35e12) == "3.35 TB/s"
    assert format_rate(50e9, unit="bit/s") == "400 Gbit/s"
    assert format_flops(989e12) == "989 TFLOP/s"


@given(st.integers(0, 2**63 - 1))
def test_exact_sizes_round_trip(size: int) -> None:
    assert parse_bytes(format_bytes(size, decimals=None)) == size


@given(st.integers(0, 2**50), st.sampled_from(["B", "kB", "MiB", "GB", "GiB"]))
def test_rounded_sizes_come_back_within_their_rounding(size: int, unit: str) -> None:
    found = parse_bytes(format_bytes(size, unit, 2))
    assert abs(found - size) <= 0.005 * parse_bytes(f"1 {unit}") + 1


@given(st.floats(0, 1e7))
def test_times_round_trip(seconds: float) -> None:
    seconds = seconds if seconds > 1e-12 else 0.0
    assert parse_time(format_time(seconds, digits=17)) == pytest.approx(seconds, rel=1e-15)
    assert parse_time(format_time(seconds)) == pytest.approx(seconds, rel=6e-3)


@given(st.floats(1, 1e18), st.sampled_from(["B/s", "bit/s"]))
def test_rates_round_trip(rate: float, unit: str) -> None:
    assert parse_rate(format_rate(rate, 17, unit)) == pytest.approx(rate, rel=1e-15)
    assert parse_rate(format_rate(rate, unit=unit)) == pytest.approx(rate, rel=6e-4)


@given(st.text(max_size=30))
def test_any_text_is_a_size_or_a_unit_error(text: str) -> None:
    try:
        size = parse_bytes(text)
    except UnitError:
        return
    assert 0 <= size < 2**63
