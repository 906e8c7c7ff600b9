"""What textbooks say a 7B or 70B model needs, beside what the simulation of that very thing says.

The rules of thumb are those of Korthikanti et al. (arXiv:2205.05198) for activations, the usual
6 N FLOPs a token, of Dettmers et al. (arXiv:2110.02861, arXiv:2305.14314) for 8-bit states and
4-bit weights, and this project's own worked case. None of them enters a simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.run import simulate
from simulator.trace.result import Result

GB, MB = 1e9, 1e6
SEQ, HIDDEN, LAYERS, HEADS = 4096, 4096, 32, 32
"""Of Llama-2 7B at the length it was trained with."""

WORKED = "llama2-7b-fsdp2-8xa100"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One rule of thumb. ``claimed`` and ``simulated`` are in ``unit``; ``why`` they differ."""

    name: str
    says: str
    claimed: str
    simulated: float
    unit: str
    why: str


def claims() -> tuple[Claim, ...]:
    """Every claim with its simulation: a second or two."""
    return (*_activations(), *_recompute(), *_logits(), *_states(), *_verdicts())


def one_gpu(model: Mapping[str, Any], **training: Any) -> dict[str, Any]:
    """A scenario of one A100 of 80 GB, pure bf16, one sequence of 4,096 tokens."""
    usual = {"seq_len": SEQ, "micro_batch": 1, "precision": "pure-bf16"}
    return {
        "name": "a claim",
        "model": dict(model),
        "cluster": {"topology": "dgx-a100", "nodes": 1, "gpus_per_node": 1},
        "parallelism": {"framework": "single"},
        "training": {**usual, "optimizer": "adamw-fused", **training},
    }


LLAMA_2 = {"preset": "llama-2-7b", "style": "torchtitan"}
LLAMA_2_HF = {"preset": "llama-2-7b", "style": "hf"}
LLAMA_3 = {"preset": "llama-3.1-8b", "style": "torchtitan"}


def kept_by_a_layer(model: Mapping[str, Any], **training: Any) -> int:
    """Bytes that one block leaves for backward: what a third layer adds to two."""
    two, three = (
        simulate(one_gpu({**model, "layers": layers}, **training), memory_only=True)
        for layers in (2, 3)
    )
    return of_phase(three, "forward", "activations") - of_phase(two, "forward", "activations")


def of_phase(result: Result, phase: str, *categories: str) -> int:
    """Bytes of some categories at a phase's peak in the second step."""
    (found,) = (p for p in result.memory.phases if (p.step, p.phase) == (1, phase))
    return sum(found.breakdown.get(category, 0) for category in categories)


def _activations() -> tuple[Claim, ...]:
    layer, eight = kept_by_a_layer(LLAMA_2), kept_by_a_layer(LLAMA_2, micro_batch=8)
    flash, eager = (kept_by_a_layer(LLAMA_2_HF, attention=kind) for kind in ("flash", "eager"))
    inputs = kept_by_a_layer(LLAMA_2, activation_checkpointing="full")
    swiglu = (
        "the rule is GPT's: four linears, GELU, dropout masks. SwiGLU keeps four tensors of 2.7 h,"
        " and no mask: 16 + 8 · 2.7 = 37.5"
    )
    return (
        Claim(
            name="activations of a sequence",
            says="34 · s · b · h a layer, 32 layers of 7B at 4,096 tokens",
            claimed="18.3",
            simulated=LAYERS * layer / GB,
            unit="GB",
            why=swiglu,
        ),
        Claim(
            name="activations of eight",
            says="the same at b = 8",
            claimed="146",
            simulated=LAYERS * eight / GB,
            unit="GB",
            why="they are linear in the batch, as the rule has it",
        ),
        Claim(
            name="attention scores",
            says="5 · a · s² · b a layer",
            claimed="2.7",
            simulated=(eager - flash) / GB,
            unit="GB",
            why="eager attention keeps its softmax in fp32 (4) and its cast (2), and drops nothing"
            " out: 6 a s²; flash attention keeps none, which is the default",
        ),
        Claim(
            name="a checkpointed layer",
            says="2 · s · b · h: its input",
            claimed="34",
            simulated=inputs / MB,
            unit="MB",
            why="as the rule has it",
        ),
    )


def _recompute() -> tuple[Claim, ...]:
    def more(checkpointing: object) -> float:
        changes: dict[str, Any] = {"training.activation_checkpointing": checkpointing}
        found = simulate(WORKED, **changes)
        assert found.hfu is not None
        assert found.mfu is not None
        return 100 * (found.hfu / found.mfu - 1)

    core = {"mode": "megatron-selective", "modules": ["core_attn"]}
    return (
        Claim(
            name="full recompute",
            says="a third more compute: 8 N instead of 6 N a token",
            claimed="33",
            simulated=more("full"),
            unit="%",
            why="each block's last product is not run again (early stop), nor is the head",
        ),
        Claim(
            name="selective recompute",
            says="a few percent: attention alone",
            claimed="2–5",
            simulated=more(core),
            unit="%",
            why="scores of 4,096 tokens are that share of a 7B; torchtitan's selective-op runs"
            " every second product again and costs more",
        ),
    )


def _logits() -> tuple[Claim, ...]:
    def held(loss: object) -> float:
        scenario = one_gpu({**LLAMA_3, "layers": 1}, loss=loss, activation_checkpointing="full")
        found = simulate(scenario, memory_only=True)
        parts = ("activations", "temporaries", "unsharded_gradients")
        return max(of_phase(found, phase, *parts) for phase in ("forward", "backward")) / GB

    return (
        Claim(
            name="logits of a sequence",
            says="4 · s · V: fp32, a vocabulary of 128k",
            claimed="2.1",
            simulated=held("eager"),
            unit="GB",
            why="three of them at once in backward: log-softmax, its gradient and the loss'",
        ),
        Claim(
            name="logits by chunks",
            says="an eighth of that with eight chunks",
            claimed="0.3",
            simulated=held({"chunked-head": 8}),
            unit="GB",
            why="an eighth is right of the logits; three copies of the head's gradient remain,"
            " 1.05 GB each",
        ),
    )


def _states() -> tuple[Claim, ...]:
    def states(optimizer: str) -> float:
        scenario = one_gpu({**LLAMA_2, "layers": 4}, optimizer=optimizer, precision="autocast")
        found = simulate(scenario, memory_only=True)
        return of_phase(found, "forward", "optimizer") / found.trace.header.parameters

    worked = simulate(WORKED, memory_only=True).memory.peak_allocated_bytes
    return (
        Claim(
            name="8-bit states",
            says="6 of 8 bytes a parameter saved",
            claimed="6",
            simulated=states("adamw") - states("adamw-8bit"),
            unit="B a parameter",
            why="each moment keeps an fp32 scale for 256 elements",
        ),
        Claim(
            name="the worked case",
            says="7B over 8 GPUs, two sequences, selective recompute",
            claimed="30–35",
            simulated=worked / GB,
            unit="GB",
            why="allocated; the allocator's reserve, context and NCCL come on top",
        ),
    )


def _verdicts() -> tuple[Claim, ...]:
    qlora = one_gpu(
        {"preset": "llama-2-70b", "style": "hf"},
        precision={"parameters": "bf16", "autocast": True},
        activation_checkpointing="full",
        optimizer="adamw-paged-8bit",
        fine_tuning={"method": "lora", "rank": 64, "targets": ["all-linear"], "base": "nf4"},
    )
    full = one_gpu(LLAMA_3, precision="autocast", activation_checkpointing="full")
    small, large = (simulate(each, memory_only=True).memory for each in (qlora, full))
    return (
        Claim(
            name="QLoRA of 70B",
            says="fits one GPU of 80 GB",
            claimed="yes" if small.fits else "no",
            simulated=small.peak_allocated_bytes / GB,
            unit="GB",
            why="36 GB of 4-bit weights and their scales; the rest is one checkpointed sequence",
        ),
        Claim(
            name="full fine-tuning of 8B",
            says="does not fit one GPU of 80 GB",
            claimed="no" if large.fits else "yes",
            simulated=large.peak_allocated_bytes / GB,
            unit="GB",
            why="16 bytes a parameter are 128 GB before the first activation",
        ),
    )
