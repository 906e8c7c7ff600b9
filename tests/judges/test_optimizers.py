"""What every optimizer must keep to.

Its steps are a program that keeps the rules; it holds after each step what it held after the
first, which is the closed form of its states; its temporaries peak at their closed form; a shard
of 1/d holds 1/d of the states, up to what does not divide.

Closed forms, for P elements of fp32, of which the largest matrix has L; in a loop l is the size of
one parameter and k of the one before, whose temporary lives until the next has its own:

===================  ==============================  ===============================
states               bytes                           temporaries
===================  ==============================  ===============================
adam, adamw          8 P (12 P with amsgrad)         foreach 4 P, for-loop max(4 k + 8 l), fused 0
sgd                  4 P (0 without momentum)        0; weight decay: foreach 4 P, for-loop 4 L
adafactor            4 (rows + columns)              foreach 4 P, for-loop max(4 k + 4 l)
muon                 4 P hidden + 8 P of the rest    Newton-Schulz, or AdamW's of the rest
bitsandbytes 8-bit   1 + 4 / 256 a state             0
torchao 8-bit, fp8   1 + 4 / 256 a state             not known without its compiler
torchao 4-bit        1/2 + 4 / 128 a state           likewise
===================  ==============================  ===============================
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from simulator.errors import ScenarioError
from simulator.lowering.framework import FRAMEWORKS
from simulator.lowering.lower import decoder_of
from simulator.lowering.optimizer import (
    DTENSOR_REFUSES,
    OPTIMIZERS,
    default_implementation,
    refusal,
)
from simulator.lowering.shards import Shard, shards_of
from simulator.memory.ledger import replay
from simulator.model.config import ModelConfig
from simulator.model.decoder import Decoder
from simulator.plan.plan import Hyper
from simulator.program.program import Program
from simulator.program.verify import verify
from simulator.run import simulate
from simulator.scenario.schema import OPTIMIZER_NAMES
from tests.lowering.states import states_of, steps_of
from tests.strategies import MIXED, PURE, make_plan

HIDDEN, FFN, VOCAB, LAYERS = 256, 512, 1024, 3
MODEL = ModelConfig(
    name="even", family="llama", layers=LAYERS, hidden=HIDDEN, ffn=FFN, heads=4, kv_heads=2,
    vocab=VOCAB, head_dim=64,
)  # fmt: skip
ODD = ModelConfig(
    name="odd", family="llama", layers=2, hidden=60, ffn=77, heads=3, kv_heads=1, vocab=101,
    head_dim=20,
)  # fmt: skip
HYPERS = {
    "usual": Hyper(),
    "decay": Hyper(weight_decay=0.1),
    "bare": Hyper(weight_decay=0.0, momentum=0.0),
    "amsgrad": Hyper(amsgrad=True),
}
BLOCK = 2 * HIDDEN * HIDDEN + 2 * HIDDEN * 128 + 3 * HIDDEN * FFN
MATRICES = 2 * VOCAB * HIDDEN + LAYERS * BLOCK
NORMS = HIDDEN * (2 * LAYERS + 1)
ALL = MATRICES + NORMS
LARGEST = VOCAB * HIDDEN


@cache
def decoder(model: ModelConfig) -> Decoder:
    return decoder_of(model, make_plan())


def played(choice: tuple[str, str], model: ModelConfig, **changes: object) -> Program:
    return steps_of(choice, decoder(model), MIXED, **changes)  # type: ignore[arg-type]


def sizes() -> list[int]:
    """Elements of each parameter, in order."""
    model = decoder(MODEL)
    graphs = (model.embedding, *model.blocks, model.head)
    return [weight.numel for graph in graphs for weight in graph.weights]


def of(choice: tuple[str, str], hyper: Hyper) -> tuple[int, int]:
    """Bytes of states, and by how much a later step's peak exceeds them."""
    report = replay(played(choice, MODEL, hyper=hyper), detail=False)
    states = report.resident[0]
    later = [p.allocated for p in report.phases if p.step == 1]
    return states, max(later, default=states) - states


@pytest.mark.parametrize("hyper", HYPERS)
@pytest.mark.parametrize("model", [MODEL, ODD], ids=["even", "odd"])
@pytest.mark.parametrize("choice", OPTIMIZERS, ids=" ".join)
def test_steps_keep_the_rules_and_leak_nothing(
    choice: tuple[str, str], model: ModelConfig, hyper: str
) -> None:
    for world in (1, 7):
        program = played(choice, model, hyper=HYPERS[hyper], world=world)
        verify(program)
        resident = replay(program, detail=False).resident
        assert 0 <= resident[0] == resident[1] == resident[2]


@pytest.mark.parametrize(
    "choice", [c for c in OPTIMIZERS if c[0] != "adamw-paged-8bit"], ids=" ".join
)
def test_states_divide_over_ranks(choice: tuple[str, str]) -> None:
    """Up to rounding to 512, and to what is too small for blocks, or to be paged."""
    whole, part = (
        replay(played(choice, MODEL, world=world), detail=False).resident[0] for world in (1, 4)
    )
    tensors = 8 * (9 * LAYERS + 3)
    assert part <= whole
    assert whole / 4 <= part <= whole / 4 + 512 * tensors + (4 + 4) * NORMS + _columns(choice)


def _columns(choice: tuple[str, str]) -> int:
    """Adafactor keeps every column's variance on every rank."""
    columns = LAYERS * (6 * HIDDEN + FFN) + 2 * HIDDEN
    return 4 * columns if choice[0] == "adafactor" else 0


@pytest.mark.parametrize("way", ["foreach", "for-loop", "fused"])
@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam(name: str, way: str, amsgrad: bool) -> None:
    states, temporaries = of((name, way), Hyper(amsgrad=amsgrad))
    counters = 512 * (9 * LAYERS + 3) if way == "fused" else 0
    assert states == (12 if amsgrad else 8) * ALL + counters
    loop = max(4 * before + 8 * numel for before, numel in pairwise([0, *sizes()]))
    assert temporaries == {"foreach": 4 * ALL, "for-loop": loop, "fused": 0}[way]


def test_l2_makes_one_copy_more_of_the_gradients_but_not_at_once() -> None:
    assert of(("adam", "foreach"), HYPERS["decay"])[1] == 4 * ALL
    assert of(("adamw", "foreach"), HYPERS["decay"])[1] == 4 * ALL


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("way", ["foreach", "for-loop", "fused"])
def test_sgd(way: str, decay: float, momentum: float) -> None:
    states, temporaries = of(("sgd", way), Hyper(weight_decay=decay, momentum=momentum))
    assert states == (4 * ALL if momentum else 0)
    copies = {"foreach": 4 * ALL, "for-loop": 4 * LARGEST, "fused": 0}
    assert temporaries == (copies[way] if decay else 0)


def test_adafactor_keeps_rows_and_columns() -> None:
    rows_and_columns = 2 * (VOCAB + HIDDEN) + LAYERS * (
        2 * (HIDDEN + HIDDEN) + 2 * (128 + HIDDEN) + 3 * (FFN + HIDDEN)
    )
    for way in ("for-loop", "foreach"):
        states, _ = of(("adafactor", way), Hyper())
        assert states == 4 * (rows_and_columns + NORMS)


def test_adafactor_foreach_holds_all_updates_and_a_loop_two() -> None:
    """The second, of a square matrix, with its rows' and columns' means and the former's mean."""
    means = 4 * (HIDDEN + HIDDEN) + 512
    assert of(("adafactor", "for-loop"), Hyper())[1] == 4 * (LARGEST + HIDDEN**2) + means
    assert of(("adafactor", "foreach"), Hyper())[1] == 4 * MATRICES + 512 * (7 * LAYERS + 2)


def test_muon_keeps_one_state_of_a_hidden_matrix_and_two_of_the_rest() -> None:
    hidden = LAYERS * BLOCK
    states, temporaries = of(("muon", "fused"), Hyper())
    counters = 512 * (2 * LAYERS + 3)
    assert states == 4 * hidden + 8 * (ALL - hidden) + counters
    gram, largest = 2 * HIDDEN**2, FFN * HIDDEN
    assert temporaries == 4 * largest + 2 * 2 * largest + 2 * gram


@pytest.mark.parametrize(
    ("name", "states", "item", "scales", "maps"),
    [
        ("adamw-8bit", 2, 1, 256, "shared"),
        ("lion-8bit", 1, 1, 256, "shared"),
        ("adamw-torchao-8bit", 2, 1, 256, "own"),
        ("adamw-fp8", 2, 1, 256, "none"),
        ("adamw-4bit", 2, 0.5, 128, "own"),
    ],
)
def test_block_wise_states(name: str, states: int, item: float, scales: int, maps: str) -> None:
    """Codes, and a scale a block; norms, below 4096 elements, stay in fp32."""
    found, temporaries = of((name, "fused"), Hyper())
    blocks = states * int(MATRICES * item + 4 * MATRICES / scales)
    each = 1024 if item == 1 else 512
    kept = {"shared": 1, "own": 7 * LAYERS + 2, "none": 0}[maps]
    assert found == blocks + states * (4 * NORMS + each * kept)
    assert temporaries == 0


def test_two_bytes_and_a_32nd_a_parameter() -> None:
    """bitsandbytes' AdamW: 2 + 8 / 256."""
    matrix = next(s for s in shards_of(decoder(MODEL).head, 1) if len(s.shape) == 2)
    assert _states("adamw-8bit", matrix) == 2.03125 * matrix.numel


def test_hugging_face_keeps_the_embeddings_states_in_32_bits() -> None:
    usual, _ = of(("adamw-8bit", "fused"), Hyper())
    told, _ = of(("adamw-8bit", "fused"), Hyper(embeddings_32bit=True))
    assert told - usual == VOCAB * HIDDEN * 8 - int(VOCAB * HIDDEN * 2.03125)


def test_paged_states_are_not_the_allocators() -> None:
    """From 1e5 elements; the maxima of their blocks are."""
    paged, _ = of(("adamw-paged-8bit", "fused"), Hyper())
    usual, _ = of(("adamw-8bit", "fused"), Hyper())
    managed = 2 * VOCAB * HIDDEN + LAYERS * 3 * FFN * HIDDEN
    assert usual - paged == 2 * managed


def test_bf16_parameters_have_bf16_states_in_torch_and_fp32_ones_in_bitsandbytes() -> None:
    matrix = next(s for s in shards_of(decoder(MODEL).head, 1) if len(s.shape) == 2)
    assert _states("adamw", matrix, PURE) == 4 * matrix.numel
    assert _states("lion", matrix, PURE) == 4 * matrix.numel


def _states(name: str, shard: Shard, precision: object = MIXED) -> int:
    choice = (name, default_implementation(name))
    return states_of(OPTIMIZERS[choice](name, precision, Hyper()), shard)  # type: ignore[arg-type]


def test_a_scenario_can_name_all_of_them() -> None:
    assert set(OPTIMIZER_NAMES) == {name for name, _ in OPTIMIZERS}
    assert DTENSOR_REFUSES.keys() <= OPTIMIZERS.keys()


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("choice", OPTIMIZERS, ids=" ".join)
def test_a_whole_step_is_timed_under_every_framework_that_does_not_refuse_it(
    choice: tuple[str, str], framework: str
) -> None:
    """What a program asks of the network, and of the kernels, can be carried out."""
    (name, way), zero = choice, framework == "deepspeed"
    scenario = {
        "name": "timed",
        "model": {"preset": "llama-2-7b", "layers": 1, "hidden": 256, "ffn": 512, "heads": 4,
                  "kv_heads": 2, "vocab": 512},
        "cluster": {"topology": "dgx-a100", "gpus_per_node": 1 if framework == "single" else 5},
        "parallelism": {"framework": framework, **({"zero": {"stage": 2}} if zero else {})},
        "training": {
            "seq_len": 64,
            "micro_batch": 1,
            "optimizer": {"name": name, "implementation": way},
        },
    }  # fmt: skip
    if refusal(name, way, framework):
        with pytest.raises(ScenarioError, match=framework):
            simulate(scenario)
        return
    assert (simulate(scenario).time.optimizer_s or 0) > 0
