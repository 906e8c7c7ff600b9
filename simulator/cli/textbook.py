"""``dryfit show --textbook``: bytes a parameter, recipe by recipe, and what that leaves out."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from simulator.cli.views import Asked, Shown
from simulator.errors import UserError

_LARGEST = Decimal(10) ** 15
_KINDS = ("parameters", "gradients", "master", "moments")
_WORDS = """\
The two accountings of {count} parameters under mixed precision with Adam, whole, on no GPU yet:
  {with_master} B each with an fp32 master copy (bf16-mixed-master):  {more}
  {without} B each where the moments alone are fp32 (bf16-no-master): {less}
Both leave out activations, logits, gathered parameters, communication buffers, the optimizer's
temporaries and the allocator's rounding; dryfit run simulates those. FSDP shards what is above."""


def textbook(asked: Asked) -> Shown:
    """The persistent state of a model under each precision recipe, unsharded."""
    from simulator.plan.precision import RECIPES, bytes_per_parameter, state_bytes

    count = _count(asked.parameters or "7e9")
    states = {name: state_bytes(recipe, count) for name, recipe in RECIPES.items()}
    each = {name: bytes_per_parameter(recipe) for name, recipe in RECIPES.items()}
    return Shown(
        text=lambda: _text(count, states, each),
        data=lambda: {
            "schema": "dryfit.textbook/1",
            "parameters": count,
            "recipes": {
                name: {
                    "bytes_per_parameter": each[name],
                    "bytes": state,
                    "total_bytes": sum(state.values()),
                }
                for name, state in states.items()
            },
        },
    )


def _text(count: int, states: dict[str, dict[str, int]], each: dict[str, int]) -> str:
    from simulator.cli.output import table

    rows = [
        [name, str(each[name]), *(_gb(state[kind]) for kind in _KINDS), _gb(sum(state.values()))]
        for name, state in states.items()
    ]
    headers = ["recipe", "B each", *(f"{kind}, GB" for kind in _KINDS), "all, GB"]
    words = _WORDS.format(
        count=f"{count:,}",
        with_master=each["bf16-mixed-master"],
        more=_both(sum(states["bf16-mixed-master"].values())),
        without=each["bf16-no-master"],
        less=_both(sum(states["bf16-no-master"].values())),
    )
    return f"{words}\n\n{table(headers, rows, numbers=headers[1:])}"


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f}"


def _both(size: int) -> str:
    return f"{_gb(size)} GB = {size / 2**30:,.1f} GiB"


def _count(text: str) -> int:
    """A number of parameters: ``7e9``, ``6738415616``."""
    try:
        count = Decimal(text)
    except InvalidOperation:
        count = Decimal("NaN")
    if not count.is_finite() or not 1 <= count <= _LARGEST or count != int(count):
        raise UserError(f"--parameters {text!r}: write a whole number from 1 to 1e15, as 7e9")
    return int(count)
