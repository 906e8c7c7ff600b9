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
from transformers import masking_utils
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from recorder.cases.whole import SMALL
from recorder.fake import kernels
from recorder.models.built import building
from recorder.models.hugging_face import as_stored
from recorder.store import DATA
from recorder.tracing.events import rounded
from recorder.tracing.tracer import Tracer
from recorder.training import no_collection

SHELF = DATA / "recorded_hf_traces.json.gz"


def record_all() -> dict[str, bool]:
    """Trace every small model into the tests' data; whether each is as it was."""
    content = json.loads(gzip.decompress(SHELF.read_bytes()))
    same = {}
    for name, (config, batch, seq) in SMALL.items():
        found = trace(config, batch, seq)
        same[name] = content["runs"].get(name) == found
        content["runs"][name] = found
    text = json.dumps(content, separators=(",", ":"))
    SHELF.write_bytes(gzip.compress(text.encode(), mtime=0))
    return same


def trace(config: dict[str, Any], batch: int, seq: int) -> dict[str, Any]:
    """Bytes allocated, minus bytes freed in whole blocks, in the host's order."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        root = _build(config)
        tracer = Tracer()
        exact = mock.patch("recorder.tracing.tracer.rounded", int)
        with no_collection(), exact, tracer:
            for tensor in (*root.parameters(), *root.buffers()):
                tracer.tag(tensor, "model")
            tokens = torch.zeros(batch, seq, dtype=torch.long, device="cuda")
            first = len(tracer.recording.events)
            tracer.phase = "fwd:0"
            loss = root(input_ids=tokens, labels=tokens, use_cache=False).loss
            tracer.phase = "bwd:0"
            loss.backward()
            del loss
            changes = [event.change for event in tracer.recording.events[first:]]
        return {
            "config": config,
            "batch": batch,
            "seq": seq,
            "events": [size if size > 0 else -rounded(-size) for size in changes],
            "parameters": [[name, list(one.shape)] for name, one in root.named_parameters()],
            "buffers": [[name, list(one.shape), _dtype(one)] for name, one in root.named_buffers()],
        }


def _build(config: dict[str, Any]) -> Any:
    keys = dict(config)
    kind, attention = keys.pop("model_type"), keys.pop("_attn_implementation", "sdpa")
    experts = keys.pop("_experts_implementation", None)
    settings = transformers.AutoConfig.for_model(kind, **keys)
    settings._attn_implementation = attention
    settings._experts_implementation = experts
    masking_utils.find_packed_sequence_indices = lambda *_, **__: None
    kernels.choose("flash")
    with building(torch.bfloat16):
        root = MODEL_FOR_CAUSAL_LM_MAPPING[type(settings)](settings)
        as_stored(root, torch.bfloat16)
    root.train()
    return root


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
