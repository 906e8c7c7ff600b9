"""``torch.compile`` of a block: which values wait for backward, and what the fused code allocates.

Read in torch 2.13: torch/_functorch/partitioners.py (what is kept) and torch/_inductor (what is
fused, freed and reused). Between two library calls (matrix products, attention) element-wise ops
and the reductions of norms become one kernel, whose intermediates are never written.
"""

from simulator.lowering.compiled.backward import computed_again, write_compiled_backward
from simulator.lowering.compiled.forward import write_compiled_forward
from simulator.lowering.compiled.partition import plan_compiled

__all__ = [
    "computed_again",
    "plan_compiled",
    "write_compiled_backward",
    "write_compiled_forward",
]
