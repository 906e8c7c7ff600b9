"""torchao's float8 linears under FSDP2."""

from __future__ import annotations

from recorder.case import PURE_BF16, Case

FLOAT8 = {
    "float8": Case(fp8="tensorwise"),
    "float8_full_block": Case(fp8="tensorwise", ac="full", wrap="block_root", clip=True),
    "float8_selective_op": Case(fp8="tensorwise", ac="selective_op"),
    "float8_pure_bf16_noreshard": Case(fp8="tensorwise", reshard=False, **PURE_BF16),
    "float8_ga2_nosync": Case(ws=7, fp8="tensorwise", grad_accum=2, ga_sync=False),
    "float8_gathered": Case(fp8="all_gather"),
    "float8_gathered_full_block": Case(fp8="all_gather", ac="full", wrap="block_root"),
    "float8_gathered_hsdp2x4_ga2": Case(fp8="all_gather", hsdp=2, grad_accum=2, clip=True),
    "float8_gathered_noreshard_prefetch1": Case(fp8="all_gather", reshard=False, prefetch_fwd=1),
}
