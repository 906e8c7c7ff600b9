"""``clip_grad_norm_`` over DTensors (torch/nn/utils/clip_grad.py, foreach)."""

from __future__ import annotations

from simulator.dtypes import DType
from simulator.kernels import Elementwise
from simulator.lowering.writer import BlockWriter
from simulator.program.instructions import Category, Collective, Stream, Tensor

MODULE = "optimizer"


def _temporary(name: str, numel: int) -> Tensor:
    return Tensor(
        name=f"clip.{name}",
        shape=(numel,),
        dtype=DType.FP32,
        category=Category.OPTIMIZER_TEMPORARIES,
        module=MODULE,
    )


def _small(name: str, numel: int) -> Elementwise:
    return Elementwise(name=f"clip.{name}", kind="copy", read=4 * numel, written=4 * numel)


def write_clipping(w: BlockWriter, parameters: int, gradient_bytes: int, ranks: int) -> None:
    """One norm a parameter, their norm over all ranks, then one scaling pass.

    ``parameters``: how many tensors; ``gradient_bytes``: bytes of the local gradients.
    """
    norms = [w.alloc(_temporary("norm", 1)) for _ in range(parameters)]
    w.launch(
        Elementwise(name="clip.norm", kind="optimizer", read=gradient_bytes, written=0), MODULE
    )
    names = ("stack", "pow", "all_reduced", "root")
    stack, power, reduced, root = (w.alloc(_temporary(name, parameters)) for name in names)
    w.launch(_small("stack", parameters), MODULE)
    w.launch(_small("pow", parameters), MODULE)
    if ranks > 1:
        w.collective(
            Collective(
                kind="all_reduce",
                bytes=4 * parameters,
                group="dp_shard",
                stream=Stream.COMPUTE,
                name="all_reduce grad_norm",
                module=MODULE,
            )
        )
    w.launch(_small("pow", parameters), MODULE)
    w.free_all((power, reduced))
    total = w.alloc(_temporary("total_norm", 1))
    w.launch(_small("total_norm", parameters), MODULE)
    w.free_all((root, stack, *reversed(norms)))
    shifted, inverse, product = (
        w.alloc(_temporary(name, 1)) for name in ("shifted", "inverse", "product")
    )
    w.free_all((inverse, shifted))
    factor = w.alloc(_temporary("factor", 1))
    for name in ("add", "reciprocal", "mul", "clamp"):
        w.launch(_small(name, 1), MODULE)
    w.free(product)
    w.launch(
        Elementwise(
            name="clip.scale", kind="optimizer", read=gradient_bytes, written=gradient_bytes
        ),
        MODULE,
    )
    w.free_all((factor, total))
