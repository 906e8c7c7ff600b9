"""Tensors that need no gradient: position ids, masks, ALiBi's slopes."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2, prod

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.model.builder import GraphBuilder


def plain(
    b: GraphBuilder, name: str, shape: Sequence[int], dtype: DType, inputs: Sequence[int] = ()
) -> int:
    """One kernel's result outside autograd."""
    out = b.value(name, shape, dtype)
    read = sum(map(b.bytes, inputs))
    kernel = Elementwise(name=name, kind="copy", read=read, written=prod(shape) * dtype.itemsize)
    b.op(name, "plain", inputs, (out,), kernel)
    return out


def position_ids(b: GraphBuilder, seq: int) -> int:
    """arange(s) + tokens seen: int64 [1, s]."""
    steps = plain(b, "arange", (seq,), DType.INT64)
    return plain(b, "position_ids", (1, seq), DType.INT64, (steps,))


def padding_mask(b: GraphBuilder, batch: int, seq: int, name: str) -> int:
    """The batch's attention mask, which says what is no padding, as bool [b, s]."""
    return plain(b, name, (batch, seq), DType.BOOL)


def ask_whether_all(b: GraphBuilder, mask: int, name: str) -> None:
    """Whether the mask is all ones, which the host reads (masking_utils.py: fast_all)."""
    total = plain(b, f"{name}.sum", (1,), DType.INT64, (mask,))
    plain(b, f"{name}.all", (1,), DType.BOOL, (total,))


def boolean_mask(
    b: GraphBuilder, batch: int, seq: int, name: str, *, sliding: bool, padding: int | None
) -> int:
    """Who sees whom, bool [1, 1, s, s] seen as [b, 1, s, s] (masking_utils.py: sdpa_mask).

    With ``padding``, which nobody sees, each sequence has its own: [b, 1, s, s].
    """
    int64 = DType.INT64
    ids = [
        plain(b, f"{name}.batch", (batch,), int64),
        plain(b, f"{name}.head", (1,), int64),
    ]
    for axis in ("q", "kv"):
        steps = plain(b, f"{name}.{axis}.arange", (seq,), int64)
        ids.append(plain(b, f"{name}.{axis}", (seq,), int64, (steps,)))
    with b.frame(*ids):
        q, kv = ids[2:]
        pattern = _window if sliding else _causal
        if padding is None:
            return pattern(b, f"{name}.seen", q, kv)
        square = (1, 1, seq, seq)
        one = plain(b, f"{name}.true", (1,), DType.BOOL)
        before = pattern(b, f"{name}.pattern", q, kv)
        within = plain(b, f"{name}.within", square, DType.BOOL, (one, before))
        there = plain(b, f"{name}.there", (batch, 1, 1, seq), DType.BOOL, (padding, kv))
        return plain(b, f"{name}.seen", (batch, 1, seq, seq), DType.BOOL, (within, there))


def _causal(b: GraphBuilder, name: str, q: int, kv: int) -> int:
    """What came before, bool [1, 1, s, s]."""
    (seq,) = b.of(q).shape
    return plain(b, name, (1, 1, seq, seq), DType.BOOL, (kv, q))


def _window(b: GraphBuilder, name: str, q: int, kv: int) -> int:
    """What came before, and not long before, bool [1, 1, s, s]."""
    (seq,) = b.of(q).shape
    square = (1, 1, seq, seq)
    one = plain(b, f"{name}.true", (1,), DType.BOOL)
    start = plain(b, f"{name}.start", (seq,), DType.INT64, (q,))
    near = plain(b, f"{name}.near", square, DType.BOOL, (kv, start))
    within = plain(b, f"{name}.within", square, DType.BOOL, (one, near))
    past = _causal(b, f"{name}.past", q, kv)
    return plain(b, name, square, DType.BOOL, (within, past))


def additive_mask(
    b: GraphBuilder, batch: int, seq: int, name: str, *, sliding: bool, padding: int | None
) -> int:
    """0 or the dtype's minimum, [b, 1, s, s] (masking_utils.py: eager_mask)."""
    seen = boolean_mask(b, batch, seq, f"{name}.bool", sliding=sliding, padding=padding)
    zero = plain(b, f"{name}.zero", (1,), b.dtype)
    lowest = plain(b, f"{name}.lowest", (1,), b.dtype)
    return plain(b, name, (batch, 1, seq, seq), b.dtype, (seen, zero, lowest))


def alibi(b: GraphBuilder, heads: int, positions: int) -> int:
    """Slopes times distances, fp32 [heads, 1, positions] (arXiv:2108.12409, as HF's MPT)."""
    power = 2 ** ceil(log2(heads))
    fp32 = DType.FP32
    row = (1, 1, 1, positions)
    distances = plain(b, "alibi.distances", row, fp32)  # int32, as wide
    steps = plain(b, "alibi.arange", (power,), DType.INT64)
    wide = plain(b, "alibi.float", (power,), fp32, (steps,))
    base = plain(b, "alibi.base", (power,), fp32, (wide,))
    raised = plain(b, "alibi.pow", (power,), fp32, (base,))
    with b.frame(raised):
        inverse = plain(b, "alibi.reciprocal", (power,), fp32, (raised,))
        slopes = plain(b, "alibi.slopes", (power,), fp32, (inverse,))
    with b.frame(distances, base) as frame:
        if power != heads:
            slopes = plain(b, "alibi.cat", (1, power, 1, 1), fp32, (slopes,))
        frame.bind(slopes)
        return plain(b, "alibi", (heads, 1, positions), fp32, (distances, slopes))
