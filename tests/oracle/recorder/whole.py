"""Whole small models by transformers' classes: every allocation and free.

One forward and backward, no framework, no optimizer. The tests compare a decoder's graphs with it.
"""

from __future__ import annotations

import gzip
import json
from typing import Any
from unittest import mock

import torch
import transformers
from torch import Tensor
from torch._subclasses import FakeTensorMode

from recorder.cases.whole import MASKED, RESHAPED, SMALL, Small
from recorder.fake import kernels
from recorder.models import Built, masked
from recorder.models.built import building
from recorder.models.hugging_face import of_settings
from recorder.store import DATA
from recorder.tracing.events import rounded
from recorder.tracing.tracer import Tracer
from recorder.training import no_collection

SHELF = DATA / "recorded_hf_traces.json.gz"


def record_all() -> dict[str, bool]:
    """Trace every small model into the tests' data; whether each is as it was."""
    content = json.loads(gzip.decompress(SHELF.read_bytes()))
    runs, same = content["runs"], {}
    for name, small in _all(runs).items():
        found = trace(*small)
        same[name] = runs.get(name) == found
        runs[name] = found
    text = json.dumps(content, separators=(",", ":"))
    SHELF.write_bytes(gzip.compress(text.encode(), mtime=0))
    return same


def _all(runs: dict[str, Any]) -> dict[str, Small]:
    """Those that were traced before, by what is known of them; the new; and with masks."""
    known = {name: (run["config"], run["batch"], run["seq"]) for name, run in runs.items()}
    plain = {name: small for name, small in known.items() if "mask" not in runs[name]} | SMALL
    plain |= {name: (plain[of][0], *shape) for name, (of, *shape) in RESHAPED.items()}
    with_mask: dict[str, Small] = {
        f"{name}_{mask}": (*plain[name][:3], mask)
        for mask, names in MASKED.items()
        for name in names
    }
    return plain | with_mask


def trace(config: dict[str, Any], batch: int, seq: int, mask: str = "none") -> dict[str, Any]:
    """Bytes allocated, minus bytes freed in whole blocks, in the host's order."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        built = _build(config, mask)
        root, tracer = built.root, Tracer()
        exact = mock.patch("recorder.tracing.tracer.rounded", int)
        with no_collection(), exact, tracer:
            for tensor in (*root.parameters(), *root.buffers()):
                tracer.tag(tensor, "model")
            tokens = torch.zeros(batch, seq, dtype=torch.long, device="cuda")
            first = len(tracer.recording.events)
            tracer.phase = "fwd:0"
            module = masked(root, None if mask == "none" else tokens)
            loss = built.loss(module, tokens, tokens, lambda _: None)
            tracer.phase = "bwd:0"
            loss.backward()
            del loss
            changes = [event.change for event in tracer.recording.events[first:]]
        return {
            "config": config,
            "batch": batch,
            "seq": seq,
            **({} if mask == "none" else {"mask": mask}),
            "events": [size if size > 0 else -rounded(-size) for size in changes],
            "parameters": [[name, list(one.shape)] for name, one in root.named_parameters()],
            "buffers": [[name, list(one.shape), _dtype(one)] for name, one in root.named_buffers()],
        }


def _build(config: dict[str, Any], mask: str) -> Built:
    keys = dict(config)
    kind, attention = keys.pop("model_type"), keys.pop("_attn_implementation", "sdpa")
    experts, of_attention = keys.pop("_experts_implementation", None), keys.pop("attn_config", {})
    settings = transformers.AutoConfig.for_model(kind, **keys)
    settings._attn_implementation = attention
    settings._experts_implementation = experts
    if of_attention:  # MPT's: its class takes no fraction for a dropout
        vars(settings.attn_config).update(of_attention)
    kernels.choose("flash")
    with building(torch.bfloat16):
        return of_settings(settings, mask)


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
