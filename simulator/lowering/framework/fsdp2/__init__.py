"""FSDP2 (``fully_shard``): when it gathers, reduces, allocates and frees.

Read in torch 2.13, torch/distributed/fsdp/_fully_shard/: ``_fsdp_param_group.py`` (order of
events), ``_fsdp_collectives.py`` (buffers and streams), ``_fsdp_state.py`` (hooks of the root),
``_fsdp_param.py`` (shards).
"""

from simulator.lowering.framework.fsdp2.framework import Fsdp2

__all__ = ["Fsdp2"]
