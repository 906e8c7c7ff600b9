"""``training.fine_tuning``: short forms, defaults by style, and names that a model lacks."""

from __future__ import annotations

import pytest

from simulator.dtypes import DType
from simulator.errors import ScenarioError
from simulator.fine_tuning import Adapters, FineTuning
from simulator.lowering.lower import decoder_of
from tests.scenario.conftest import TINY, Load

LORA = "training.fine_tuning=lora"


def tuned(load_text: Load, *sets: str) -> FineTuning | None:
    return load_text(TINY, list(sets)).plan.training.fine_tuning


def test_the_short_form_is_lora_on_q_and_v(load_text: Load) -> None:
    assert tuned(load_text, LORA) == FineTuning(adapters=Adapters(rank=16, targets=("q", "v")))
    assert tuned(load_text, "training.fine_tuning={method: lora, rank: 16}") == tuned(
        load_text, LORA
    )
    assert tuned(load_text, "training.fine_tuning=null") is None
    assert tuned(load_text, "training.fine_tuning=full") is None


def test_adapters_are_fp32_beside_16_bit_weights_of_hugging_face(load_text: Load) -> None:
    def dtype(*sets: str) -> DType | None:
        found = tuned(load_text, LORA, *sets)
        assert found is not None
        assert found.adapters is not None
        return found.adapters.dtype

    bf16, hf = "training.precision=pure-bf16", "model.style=hf"
    assert dtype() is None
    assert dtype(bf16) is None
    assert dtype(hf) is None  # the weights are fp32 too
    assert dtype(hf, bf16) is DType.FP32
    assert dtype(hf, bf16, "training.fine_tuning.adapters=bf16") is None


def test_autocast_over_bf16_weights_casts_adapters_alone(load_text: Load) -> None:
    precision = "training.precision={parameters: bf16, autocast: true}"
    sets = ["parallelism.framework=single", "cluster.gpus_per_node=1", precision]
    found = load_text(TINY, [*sets, LORA]).plan.training
    assert (found.precision.autocast, found.precision.compute) == (DType.BF16, DType.BF16)
    for more in ([], [LORA, "training.fine_tuning.adapters=bf16"]):
        with pytest.raises(ScenarioError, match="leave it nothing to cast"):
            load_text(TINY, [*sets, *more])


def test_layers_are_frozen_by_number(load_text: Load) -> None:
    found = tuned(load_text, "training.fine_tuning={freeze: [embed, layers.0-1]}")
    assert found == FineTuning(freeze=("embed", "layers.0-1"))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("{method: lorra}", "did you mean 'lora'"),
        ("{method: lora, targets: [q, w7]}", "no module 'w7'"),
        ("{method: lora, targets: [alllinear]}", "did you mean 'all-linear'"),
        ("{method: lora, also_train: [heads]}", "did you mean 'head'"),
        ("{method: lora, rank: 0}", "from 1 to 65,536, found 0"),
        ("{freeze: [layer]}", "did you mean 'layers'"),
        ("{freeze: [layers.900]}", "no module 'layers.900'"),
        ("{method: lora, targets: []}", "nothing is trained"),
        ("{freeze: [embed, layers, norm, head]}", "nothing is trained"),
        ("{freeze: [embed, layers.0-20, norm, layers.20-31, head]}", "nothing is trained"),
        ("{freeze: 3}", "expected a list of names, found 3"),
        ("{method: lora, base: nf4}", "supported: model.style: hf"),
        ("{method: lora, base: int4}", "unknown value 'int4'"),
    ],
)
def test_names_that_the_model_lacks(load_text: Load, setting: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_text(TINY, [f"training.fine_tuning={setting}"])
    assert words in str(caught.value)


def test_a_tied_head_is_frozen_with_its_embedding(load_text: Load) -> None:
    with pytest.raises(ScenarioError, match="name both embed and head, or none"):
        load_text(TINY, ["model=llama-3.2-1b", "training.fine_tuning={freeze: [embed]}"])


@pytest.mark.parametrize(
    "setting", ["{rank: 8}", "{also_train: [head]}", "{method: lora, freeze: [embed]}"]
)
def test_what_has_no_effect_is_warned_about(load_text: Load, setting: str) -> None:
    (warning,) = load_text(TINY, [f"training.fine_tuning={setting}"]).warnings
    assert "has no effect: " in warning


@pytest.mark.parametrize(
    "setting",
    ["{method: lora, targets: [], also_train: [head]}", "{freeze: [embed, layers.0, norm, head]}"],
)
def test_what_trains_something_is_taken(load_text: Load, setting: str) -> None:
    assert tuned(load_text, f"training.fine_tuning={setting}") is not None


FSDP1 = ("model=mistral-7b", "parallelism={framework: fsdp1}", "training.precision=pure-bf16", LORA)
CHECKPOINTING = "training.activation_checkpointing"


def test_adapters_under_fsdp1_are_wrapped_as_the_trainer_of_transformers_does(
    load_text: Load,
) -> None:
    fsdp = load_text(TINY, list(FSDP1)).plan.parallelism.fsdp
    assert (fsdp.wrap, fsdp.use_orig_params) == ("peft", False)
    whole = load_text(TINY, list(FSDP1[:-1])).plan.parallelism.fsdp
    assert (whole.wrap, whole.use_orig_params) == ("block", True)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["parallelism.fsdp.forward_prefetch=1"], "with fine_tuning; supported: 0"),
        (["parallelism.fsdp.backward_prefetch=post"], "supported: pre, none"),
        (["parallelism.fsdp.use_orig_params=true"], "and autocast alone casts it back"),
        (
            ["parallelism.fsdp={wrap: block, use_orig_params: false}"],
            "only with use_orig_params; supported: true, or wrap: peft",
        ),
        (["parallelism.fsdp.wrap=block"], "a flat parameter has one dtype"),
        (["training.fine_tuning.also_train=[norm]"], "supported: wrap: block"),
        (["training.fine_tuning=null", "parallelism.fsdp.wrap=peft"], "there are none"),
        (["parallelism={framework: fsdp2, fsdp: {wrap: peft}}"], "supported: block, framework"),
    ],
)
def test_what_fsdp1_cannot_do_with_frozen_weights(
    load_text: Load, sets: list[str], words: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_text(TINY, [*FSDP1, *sets])
    assert words in str(caught.value)


def test_original_parameters_show_peft_the_dtype_of_their_shards(load_text: Load) -> None:
    sets = [*FSDP1, "parallelism.fsdp.use_orig_params=true"]
    sets.append("training.precision={parameters: bf16, autocast: true}")
    plan = load_text(TINY, sets).plan
    assert plan.parallelism.fsdp.use_orig_params
    assert plan.training.precision.autocast is DType.BF16


def test_a_loss_that_projects_by_a_frozen_head_goes_with_fsdp1(load_text: Load) -> None:
    assert load_text(TINY, [*FSDP1, "training.loss=fused-linear"]).plan.training.loss
    for change in ("training.fine_tuning=null", "parallelism.framework=ddp"):
        with pytest.raises(ScenarioError, match="is not supported under"):
            load_text(TINY, [*FSDP1, "training.loss=fused-linear", change])


def test_re_entrant_checkpoints_stand_around_units_of_fsdp1(load_text: Load) -> None:
    whole = [*FSDP1[:-1], f"{CHECKPOINTING}={{mode: full, reentrant: true}}"]
    assert load_text(TINY, whole).plan.training.checkpoint_reentrant
    with pytest.raises(ScenarioError, match=r"not yet supported with fsdp.forward_prefetch"):
        load_text(TINY, [*whole, "parallelism.fsdp.forward_prefetch=1"])


def test_autocast_beside_16_bit_weights_is_for_modules_of_hugging_face(load_text: Load) -> None:
    """torch's own RMSNorm is on autocast's fp32 list; transformers' casts by itself."""
    sets = ["parallelism.framework=single", "cluster.gpus_per_node=1", "model.style=torchtitan"]
    sets += ["training.precision={parameters: bf16, autocast: true}", LORA]
    with pytest.raises(ScenarioError, match=r"use model.style: hf"):
        load_text(TINY, [*sets, "training.fine_tuning.adapters=fp32"])


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["training.fine_tuning.base=nf4", "model.style=hf"], "with base: nf4; leave out one"),
        (["training.precision=autocast"], "with autocast; supported: pure-bf16"),
        (["model=gpt2", "training.fine_tuning.targets=[c_attn]"], "GPT-2's Conv1D"),
        (["parallelism.framework=fsdp1"], "supported: framework: fsdp2, ddp, single"),
    ],
)
def test_where_dora_is_not_known_it_is_refused(
    load_text: Load, sets: list[str], words: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_text(TINY, [LORA, "training.fine_tuning.dora=true", *sets])
    assert words in str(caught.value)


def test_a_rank_stabilised_scaling_is_accepted_and_costs_nothing(load_text: Load) -> None:
    found = load_text(TINY, [LORA, "training.fine_tuning.rank_stabilized=true"])
    assert found.plan == load_text(TINY, [LORA]).plan
    assert "a scaling costs neither memory nor time" in found.warnings[0]


def test_norms_in_fp32_make_the_residual_stream_fp32(load_text: Load) -> None:
    """trl's casts of a 4-bit model: from the first MLP on, whose 4-bit linears return fp32."""
    sets = ["parallelism.framework=single", "cluster.gpus_per_node=1", "model.style=hf"]
    sets.append("training.fine_tuning={method: lora, base: nf4, norms: fp32}")
    autocast = "training.precision={parameters: bf16, autocast: true}"
    found = load_text(TINY, [*sets, autocast])
    first, *later = decoder_of(found.model, found.plan).blocks
    dtypes = [graph.values[graph.input or 0].dtype for graph in (first, *later)]
    assert dtypes == [DType.BF16, *[DType.FP32] * len(later)]
    for change, words in (
        ("training.precision=pure-bf16", "need autocast"),
        ("model=gpt2", "supported: llama, mistral"),
        ("parallelism.framework=fsdp2", "trl casts none under FSDP"),
    ):
        with pytest.raises(ScenarioError, match=words):
            load_text(TINY, [*sets, autocast, change])
