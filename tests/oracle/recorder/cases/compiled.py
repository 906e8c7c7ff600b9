"""Blocks that torch.compile partitions: what is kept, not what a step allocates."""

from __future__ import annotations

from recorder.case import Case


def _hf(model: str, attn: str = "flash", ac: str = "none", fp8: str | None = None) -> Case:
    return Case(model=f"hf:{model}", attn=attn, ac=ac, fp8=fp8)


COMPILED: dict[str, Case] = {
    "titan": Case(),
    "titan_odd": Case(model="titan:odd", seq=77, mb=3),
    "titan_composite": Case(fused_rms=False),
    "titan_grouped": Case(gqa_native=True),
    "titan_full": Case(ac="full"),
    "titan_selective_op": Case(ac="selective_op"),
    "titan_selective_op_composite_grouped": Case(
        ac="selective_op", fused_rms=False, gqa_native=True
    ),
    "titan_save_mm": Case(ac="save_mm"),
    "titan_part_core_attn_mlp": Case(ac="part_core_attn+mlp"),
    "titan_llama3_8b": Case(model="titan:llama3_8b"),
    "titan_llama2_7b_selective_op": Case(model="titan:llama2_7b", ac="selective_op"),
    "hf_llama3_8b": _hf("llama-3.1-8b"),
    "hf_llama3_8b_selective_op": _hf("llama-3.1-8b", ac="selective_op"),
    "hf_llama3_8b_eager": _hf("llama-3.1-8b", "eager"),
    "hf_qwen2.5_7b": _hf("qwen2.5-7b"),
    "hf_qwen3_8b": _hf("qwen3-8b"),
    "hf_phi4": _hf("phi-4"),
    "hf_gpt2": _hf("gpt2"),
    "hf_gpt2_eager": _hf("gpt2", "eager"),
    "hf_gpt_neox_20b": _hf("gpt-neox-20b"),
    "hf_gemma2_9b_eager": _hf("gemma-2-9b", "eager"),
    "float8": Case(fp8="tensorwise"),
    "float8_grouped": Case(gqa_native=True, fp8="tensorwise"),
    "float8_composite": Case(fused_rms=False, fp8="tensorwise"),
    "float8_full": Case(ac="full", fp8="tensorwise"),
    "float8_selective_op": Case(ac="selective_op", fp8="tensorwise"),
    "float8_llama3_8b_one": Case(model="titan:llama3_8b", mb=1, seq=8192, fp8="tensorwise"),
    "float8_llama2_7b_selective_op": Case(
        model="titan:llama2_7b", ac="selective_op", fp8="tensorwise"
    ),
    "float8_rowwise": Case(model="titan:llama3_8b", fp8="rowwise"),
    "float8_rowwise_selective_op": Case(model="titan:llama3_8b", ac="selective_op", fp8="rowwise"),
    "float8_hf_llama3_8b": _hf("llama-3.1-8b", fp8="tensorwise"),
    "float8_hf_llama3_8b_selective_op": _hf("llama-3.1-8b", ac="selective_op", fp8="tensorwise"),
    "float8_hf_llama3_8b_eager": _hf("llama-3.1-8b", "eager", fp8="tensorwise"),
    "float8_hf_qwen2.5_7b": _hf("qwen2.5-7b", fp8="tensorwise"),
    "float8_hf_qwen3_8b": _hf("qwen3-8b", fp8="tensorwise"),
    "float8_hf_phi4": _hf("phi-4", fp8="tensorwise"),
    "float8_hf_gpt_neox_20b": _hf("gpt-neox-20b", fp8="tensorwise"),
}
