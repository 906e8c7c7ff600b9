from __future__ import annotations

from tests.cli.conftest import Dryfit

EXPECTED = {
    "models": "llama-2-7b",
    "gpus": "a100-sxm-80gb",
    "topologies": "dgx-a100",
    "scenarios": "llama2-7b-fsdp2-8xa100",
    "precisions": "fsdp-mixed",
    "optimizers": "adamw",
    "collectives": "ring",
}


def test_each_kind_alone_and_all_together(dryfit: Dryfit) -> None:
    everything = dryfit("list", "--json").json
    assert list(everything) == ["schema", *EXPECTED]
    for kind, name in EXPECTED.items():
        one = dryfit("list", kind)
        assert one.code == 0
        assert name in one.out.split()
        assert everything[kind] == dryfit("list", kind, "--json").json[kind]
        assert name in [row["name"] for row in everything[kind]]
