"""``dryfit init``: a commented scenario to begin with."""

from __future__ import annotations

from pathlib import Path

import click

from simulator.cli.options import verb

DEFAULT = "scenario.yaml"

STARTER = """\
# yaml-language-server: $schema=scenario.schema.json
#
# A scenario for dryfit. Run it:      dryfit run scenario.yaml
# Every value, and where it is from:  dryfit show scenario.yaml
# What is built in:                   dryfit list
# For editors that complete and check: dryfit schema > scenario.schema.json
name: Llama-3.1 8B, FSDP2 over 8 H100s

model: llama-3.1-8b               # dryfit list models; or a map:
# model:
#   hf_config: config.json        # a Hugging Face config.json beside this file, or preset: NAME
#   layers: 16                    # any shape field in place of the model's own

cluster:
  topology: dgx-h100              # dryfit list topologies; or a file beside this one
  nodes: 1
# gpus_per_node: 4                # fewer than are there
# gpu: h200-sxm-141gb             # in place of the topology's: dryfit list gpus

parallelism:
  framework: fsdp2                # dp_shard is left out: it fills the world
# dp_replicate: 2                 # HSDP: two replicas, each sharded over half of the GPUs
# fsdp:
#   wrap: block                   # torchtitan | block | none | patterns of module names
#   reshard_after_forward: false  # true | false | how many slices

training:
  seq_len: 8192                   # tokens in a sequence
  micro_batch: 1                  # sequences a rank and micro-step
# global_batch: 64                # sequences a step over all ranks; or grad_accum: 8
  precision: fsdp-mixed           # fp32 shards, bf16 compute | pure-bf16 | autocast | a map
  optimizer: adamw-fused          # adamw | adamw-fused | sgd | muon
  clip_grad_norm: 1.0             # null: no clipping
  activation_checkpointing: selective-op   # none | full | selective-op | every-2

# offload: {parameters: host}     # parameters, gradients and optimizer in host memory

expect:                           # dryfit check holds the answer to it
  fits: true

what_if:                          # dryfit run scenario.yaml --what-if
  - {name: recompute everything, set: {training.activation_checkpointing: full}}
  - {name: twice the batch, set: {training.micro_batch: 2}}
"""
"""What init writes."""


@verb("init", "A commented scenario to begin with.")
@click.argument("file", default=DEFAULT, type=click.Path())
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def init(file: str, force: bool) -> int:
    """Write a commented scenario to FILE (scenario.yaml where none is named; - for stdout)."""
    from simulator.cli.folder import write_whole
    from simulator.cli.output import emit, say
    from simulator.errors import UserError

    if file == "-":
        emit(STARTER.removesuffix("\n"))
        return 0
    path = Path(file)
    if not file.strip() or not file.isprintable() or path.is_dir():
        raise UserError(f"init needs the name of a file, found {file!r}")
    if path.exists() and not force:
        raise UserError(f"{path} is there already; --force writes over it")
    text = STARTER.replace(DEFAULT, path.name)
    write_whole(path, lambda target: target.write_text(text, encoding="utf-8"))
    say(f"wrote {path}; next: dryfit run {path}")
    return 0
