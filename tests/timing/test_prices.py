"""From kernels to integers, and which curve a GPU gets."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from simulator.dtypes import DType
from simulator.errors import ProgramError, UnknownNameError
from simulator.hardware.catalogue import gpu as gpu_named
from simulator.hardware.catalogue import gpu_names
from simulator.hardware.topologies import build, find_topology
from simulator.kernels import Attention, Elementwise, Gemm
from simulator.program.instructions import Alloc, Category, Launch, Mark, Stream, Tensor
from simulator.program.program import Block
from simulator.timing.constants import constants
from simulator.timing.families import lender
from simulator.timing.kernels import curve_note, kernel_seconds
from simulator.timing.prices import HOST_COLLECTIVE_NS, HOST_LAUNCH_NS, OVERLAP, launch_ns, to_ns
from tests.timing.star_cluster import gpu

H100 = gpu("H100", fp8=1979.0)
SQUARE = Gemm(name="square", m=8192, n=8192, k=8192, dtype=DType.BF16)
ATTENTION = Attention(
    name="attention",
    kernel="flash",
    batch=1,
    heads=32,
    kv_heads=8,
    seq_q=8192,
    seq_k=8192,
    head_dim=128,
    dtype=DType.BF16,
    causal=True,
    backward=False,
)


def copy(size: int, kind: str = "copy") -> Elementwise:
    return Elementwise(name=kind, kind=kind, read=size // 2, written=size // 2)


@pytest.mark.parametrize(
    ("seconds", "ns"), [(0.0, 1), (1e-12, 1), (1.4e-9, 1), (2.5e-9, 3), (3.5e-9, 4), (1.0, 10**9)]
)
def test_seconds_become_whole_nanoseconds_half_up(seconds: float, ns: int) -> None:
    assert to_ns(seconds) == ns


def test_launches_are_priced_in_order_and_nothing_else_is() -> None:
    tensor = Tensor(
        name="x",
        shape=(8,),
        dtype=DType.BF16,
        category=Category.ACTIVATIONS,
        module="layers.*",
    )
    kernels = (SQUARE, copy(1 << 30), ATTENTION)
    block = Block(
        name="block",
        instructions=(
            Mark("begin"),
            Alloc(0, tensor, Stream.COMPUTE),
            *(Launch(kernel, Stream.COMPUTE, "layers.*") for kernel in kernels),
        ),
    )
    prices = launch_ns(block, H100)
    assert prices == tuple(to_ns(kernel_seconds(kernel, H100)) for kernel in kernels)
    assert all(isinstance(price, int) for price in prices)


def test_a_large_product_takes_what_its_efficiency_says() -> None:
    reached = SQUARE.flops / kernel_seconds(SQUARE, H100)
    assert 0.69 < reached / 989e12 < 0.746


def test_a_batch_is_as_many_products() -> None:
    many = replace(SQUARE, batch=4)
    assert kernel_seconds(many, H100) == pytest.approx(4 * kernel_seconds(SQUARE, H100), rel=0.02)


def test_a_thin_product_is_bound_by_memory() -> None:
    thin = Gemm(name="thin", m=16, n=8192, k=8192, dtype=DType.BF16)
    assert kernel_seconds(thin, H100) > thin.bytes / 3.35e12


def test_odd_widths_are_slower() -> None:
    odd, even = (replace(SQUARE, n=n) for n in (10922, 10944))
    assert 1.4 < kernel_seconds(odd, H100) / kernel_seconds(even, H100) < 1.5


def test_fp8_is_faster_where_there_is_fp8() -> None:
    fp8 = replace(SQUARE, dtype=DType.FP8)
    assert kernel_seconds(fp8, H100) < 0.6 * kernel_seconds(SQUARE, H100)
    a100 = gpu("A100", tflops=312, sms=108, tbytes=2.039)
    assert kernel_seconds(fp8, a100) > kernel_seconds(fp8, H100)


def test_a_power_cap_slows_products_and_nothing_else() -> None:
    capped = gpu("H100", watts=500.0)
    assert kernel_seconds(SQUARE, H100) / kernel_seconds(SQUARE, capped) == pytest.approx(
        0.85, abs=0.01
    )
    assert kernel_seconds(ATTENTION, capped) == kernel_seconds(ATTENTION, H100)
    assert kernel_seconds(SQUARE, gpu("H100", watts=900.0)) == kernel_seconds(SQUARE, H100)


def test_backward_is_the_measured_sum_less_the_forward() -> None:
    forward = kernel_seconds(ATTENTION, H100)
    backward = kernel_seconds(replace(ATTENTION, backward=True), H100)
    assert 2.3 < backward / forward < 2.8


@pytest.mark.parametrize("kernel", ["flash3", "cudnn"])
def test_newer_attention_kernels_are_faster_on_hopper(kernel: str) -> None:
    newer = replace(ATTENTION, kernel=kernel)
    for backward in (False, True):
        old, new = (replace(one, backward=backward) for one in (ATTENTION, newer))
        assert kernel_seconds(new, H100) < 0.75 * kernel_seconds(old, H100)


def test_a_full_mask_is_half_the_flops_but_less_than_half_the_time() -> None:
    ratio = kernel_seconds(replace(ATTENTION, causal=False), H100) / kernel_seconds(ATTENTION, H100)
    assert 1.5 < ratio < 2.0


@pytest.mark.parametrize("kind", constants("kernels")["elementwise"]["classes"])
def test_memory_bound_kernels_take_their_share_of_hbm(kind: str) -> None:
    share = (1 << 30) / (kernel_seconds(copy(1 << 30, kind), H100) * 3.35e12)
    assert 0.3 < share < 0.9
    assert kernel_seconds(copy(2, kind), H100) == pytest.approx(3e-6, rel=1e-3)


@pytest.mark.parametrize("kind", ["host_to_device", "device_to_host"])
@pytest.mark.parametrize(
    ("where", "gbytes"),
    [
        ("dgx-h100", 55.0),  # a PCIe switch each
        ("dgx-a100", 12.5),  # two GPUs below one of 25 GB/s
        ("gb200-nvl72", 250.0),  # C2C, and half of a CPU's memory
        ("rtx4090-2", 25.0),
        (None, 55.0),
    ],
)
def test_copies_to_the_host_go_at_the_rate_of_the_way(
    kind: str, where: str | None, gbytes: float
) -> None:
    card = build(find_topology(where)).devices[0].gpu if where else H100
    size = 1 << 30
    kernel = Elementwise(name="copy", kind=kind, read=size, written=size)
    assert kernel_seconds(kernel, card) == pytest.approx(size / (gbytes * 1e9))


def test_a_copy_by_one_gpu_of_two_has_the_switch_for_itself() -> None:
    alone = build(find_topology("dgx-a100"), gpus_per_node=1).devices[0].gpu
    assert alone.host_bytes_per_s == 25e9


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_has_a_price_for_every_kernel(name: str) -> None:
    card = gpu_named(name)
    kinds = constants("kernels")["elementwise"]["classes"]
    for kind in (*kinds, *constants("kernels")["host_copies"]["kinds"]):
        assert kernel_seconds(copy(1 << 20, kind), card) > 0
    for attention in constants("kernels")["attention"]["implementations"]:
        for backward, dtype in product((False, True), (DType.BF16, DType.FP16, DType.FP8)):
            kernel = replace(ATTENTION, kernel=attention, backward=backward, dtype=dtype)
            assert 0 < kernel_seconds(kernel, card) < 10
    for dtype in DType:
        assert kernel_seconds(replace(SQUARE, dtype=dtype), card) > 0


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ProgramError, match="mystery"):
        kernel_seconds(copy(8, "mystery"), H100)
    with pytest.raises(UnknownNameError, match="flahs"):
        kernel_seconds(replace(ATTENTION, kernel="flahs"), H100)


def test_a_gpu_without_points_takes_its_relatives_curve_and_says_so() -> None:
    assert curve_note(H100) is None
    assert "H100" in str(curve_note(gpu("H200")))
    assert "prior" in str(curve_note(gpu("B200")))
    assert "no relative" in str(curve_note(gpu("Abacus")))
    assert kernel_seconds(SQUARE, gpu("H200")) == kernel_seconds(SQUARE, H100)


def test_relatives_are_looked_for_in_both_directions() -> None:
    assert lender("GB300", ["H100", "B200"]) == "B200"
    assert lender("H100", ["GB200", "H200"]) == "H200"
    assert lender("Abacus", ["A100", "H100"]) == "H100"
    assert lender("A100", ["GB200", "H200"]) == "H200"
    assert lender("Abacus", ["GB200", "H200"]) == "H200"
    assert lender("Abacus", ["MI355X"]) == "MI355X"


def test_a_changed_gpu_of_the_same_name_is_priced_anew() -> None:
    slow = replace(H100, hbm_bytes_per_s=1e12, peak_flops={DType.BF16: 100e12})
    assert kernel_seconds(SQUARE, slow) > 5 * kernel_seconds(SQUARE, H100)


def test_host_costs_and_overlap_are_exact_numbers() -> None:
    assert HOST_LAUNCH_NS == 5000
    assert HOST_COLLECTIVE_NS > HOST_LAUNCH_NS
    assert OVERLAP.compute == (83, 100)
    assert OVERLAP.communication == (9, 10)


def test_every_constant_names_its_source() -> None:
    def entries(node: object) -> list[dict[str, object]]:
        if isinstance(node, list):
            return [found for one in node for found in entries(one)]
        if not isinstance(node, dict):
            return []
        below = [found for one in node.values() for found in entries(one)]
        return [node, *below] if "prior" in node else below

    for name in ("kernels", "collectives", "host"):
        found = entries(constants(name))
        assert found
        for entry in found:
            assert entry["source"]
            assert entry["prior"] or entry.get("points", 20) >= 20  # type: ignore[operator]
