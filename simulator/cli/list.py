"""``dryfit list``: what is built in, by name."""

from __future__ import annotations

from collections.abc import Callable

import click

from simulator.cli.options import json_option, verb

Row = dict[str, object]


def _models() -> list[Row]:
    from simulator.model.families import parameters_of
    from simulator.model.presets import PRESETS

    shown = ("style", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab")
    return [
        {
            "name": name,
            **{key: getattr(config, key) for key in shown},
            "parameters": total,
            "active": active,
        }
        for name, config in PRESETS.items()
        for total, active in [parameters_of(config)]
    ]


def _gpus() -> list[Row]:
    from simulator.dtypes import DType
    from simulator.hardware.catalogue import gpu, gpu_names
    from simulator.units import format_bytes, format_flops, format_rate

    return [
        {
            "name": name,
            "usable": format_bytes(card.usable_bytes),
            "memory rate": format_rate(card.hbm_bytes_per_s),
            "dense bf16": format_flops(card.peak_flops.get(DType.BF16, 0.0)),
            "power": f"{card.power_watts:g} W",
        }
        for name in gpu_names()
        for card in [gpu(name)]
    ]


def _topologies() -> list[Row]:
    from simulator.hardware.topologies import find_topology, topology_names

    return [
        {
            "name": name,
            "GPUs a node": spec.gpus_per_node,
            "gpu": spec.gpu,
            "USD/h a node": f"{spec.price.usd_per_hour:.2f}" if spec.price else "",
            "price as of": spec.price.as_of if spec.price else "",
        }
        for name in topology_names()
        for spec in [find_topology(name)]
    ]


def _scenarios() -> list[Row]:
    from simulator.data import data_names
    from simulator.scenario import load

    return [
        {"name": name, "what": scenario.name, "measured": "yes" if scenario.measured else ""}
        for name in data_names("scenarios")
        for scenario in [load(name)]
    ]


def _collectives() -> list[Row]:
    from simulator.timing.collectives import ALGORITHMS

    return [
        {"name": name, "what": (type(algorithm).__doc__ or "").partition("\n")[0]}
        for name, algorithm in ALGORITHMS.items()
    ]


def _precisions() -> list[Row]:
    from simulator.plan.precision import RECIPES, bytes_per_parameter, nearest

    return [
        {
            "name": name,
            "B/param": bytes_per_parameter(recipe),
            "under fsdp2": "yes" if nearest(name, "fsdp2") == name else nearest(name, "fsdp2"),
        }
        for name, recipe in RECIPES.items()
    ]


def _optimizers() -> list[Row]:
    from simulator.lowering.optimizer import DTENSOR_REFUSES, OPTIMIZERS

    return [
        {
            "name": name,
            "implementation": way,
            "under fsdp2": DTENSOR_REFUSES.get((name, way), ("", "yes"))[1],
        }
        for name, way in OPTIMIZERS
    ]


KINDS: dict[str, Callable[[], list[Row]]] = {
    "models": _models,
    "gpus": _gpus,
    "topologies": _topologies,
    "scenarios": _scenarios,
    "precisions": _precisions,
    "optimizers": _optimizers,
    "collectives": _collectives,
}


@verb("list", "What is built in, by name.")
@click.argument("kind", required=False, type=click.Choice(list(KINDS)))
@json_option
def list_(kind: str | None, as_json: bool) -> int:
    """What is built in, of one KIND or of all."""
    from simulator.cli.output import emit, emit_json

    found = {name: KINDS[name]() for name in ([kind] if kind else KINDS)}
    if as_json:
        emit_json({"schema": "dryfit.list/1", **found})
    elif kind:
        emit(_table(found[kind]))
    else:
        emit("\n\n".join(f"{name}\n{_table(rows)}" for name, rows in found.items()))
    return 0


def _table(rows: list[Row]) -> str:
    from simulator.cli.output import table

    headers = list(rows[0]) if rows else ["name"]
    numbers = [key for key in headers if all(str(row[key])[:1].isdigit() for row in rows)]
    return table(headers, [[str(row[key]) for key in headers] for row in rows], numbers)
