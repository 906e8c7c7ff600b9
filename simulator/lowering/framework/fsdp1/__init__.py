"""FSDP1 (``FullyShardedDataParallel``): flat parameters, gathered and reduced whole.

Read in torch 2.13, torch/distributed/fsdp/: ``_flat_param.py`` (what a flat parameter holds),
``_runtime_utils.py`` (order of events), ``_limiter_utils.py`` (how far the host runs ahead).
"""

from simulator.lowering.framework.fsdp1.framework import Fsdp1

__all__ = ["Fsdp1"]
