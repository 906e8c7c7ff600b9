"""From the last norm to the loss: what the model does to its logits, and the loop with them.

A name is ``eager``, ``eager-kept-logits`` (the loop's variable holds them until the next forward
has returned), ``hf-upcast`` (the model casts them to fp32 itself, and the loop keeps those),
``hf-upcast-dropped-logits`` (the loop does not), ``hf-shifted-logits`` (transformers' loss of 4.46
to 4.48 casts and copies them), ``chunked-N`` (torchtune's ``CEWithChunkedOutputLoss``),
``chunked-logits-N`` (the same of whole logits) or ``chunked-head-N`` (the loss projects and
compares chunk by chunk under checkpointing, with the head's weight in its hands).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import MethodType
from typing import Any, TypeAlias

import torch.nn.functional as functional
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Projection: TypeAlias = Callable[[nn.Module, Tensor], Any]
"""(head, normed hidden states) -> what the model's forward returns."""
At: TypeAlias = Callable[[str], None]
Loss: TypeAlias = Callable[[nn.Module, Tensor, Tensor, At], Tensor]

IGNORED = -100
SHIFTING = ("hf-upcast-dropped-logits", "hf-shifted-logits")


def whole(head: nn.Module, hidden: Tensor) -> Any:
    """Logits in the compute dtype."""
    return head(hidden)


def wide(head: nn.Module, hidden: Tensor) -> Any:
    """Logits in fp32."""
    return head(hidden).float()


def pieces(chunks: int, head: nn.Module, hidden: Tensor) -> Any:
    """One tensor of logits a chunk of the sequence."""
    return [head(chunk) for chunk in hidden.chunk(chunks, dim=1)]


def none(_: nn.Module, hidden: Tensor) -> Any:
    """The loss projects."""
    return hidden


def titan_loss(name: str) -> tuple[Projection, Loss]:
    """What torchtitan's decoder returns, and the loss of it.

    Raises:
        ValueError: no such loss.
    """
    kind, chunks = _parsed(name)
    if kind == "eager":
        return whole, cross_entropy
    if kind == "eager-kept-logits":
        return whole, Keeping()
    if kind == "hf-upcast":
        return wide, Keeping()
    if kind == "chunked":
        return partial(pieces, chunks), partial(in_pieces, chunks)
    if kind == "chunked-logits":
        return whole, partial(cut_logits, chunks)
    return none, partial(with_head, chunks)


def _parsed(name: str) -> tuple[str, int]:
    kind, _, count = name.rpartition("-")
    if count.isdigit() and kind in ("chunked", "chunked-head", "chunked-logits"):
        return kind, int(count)
    if name not in ("eager", "eager-kept-logits", "hf-upcast", *SHIFTING):
        raise ValueError(f"no loss {name!r}")
    return name, 1


def cross_entropy(module: nn.Module, tokens: Tensor, labels: Tensor, at: At) -> Tensor:
    """torchtitan's loss, in fp32; the logits live until it returns."""
    logits = module(tokens)
    at("loss")
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))


class Keeping:
    """A loop that never drops its ``pred``: it holds the logits until it is bound again."""

    def __init__(self) -> None:
        self.held: Any = None

    def __call__(self, module: nn.Module, tokens: Tensor, labels: Tensor, at: At) -> Tensor:
        self.held = module(tokens)
        at("loss")
        return functional.cross_entropy(self.held.flatten(0, 1).float(), labels.flatten(0, 1))


def in_pieces(chunks: int, module: nn.Module, tokens: Tensor, labels: Tensor, at: At) -> Tensor:
    """Each chunk is cast to fp32 alone; the sum is divided by the number of labels."""
    logits = module(tokens)
    at("loss")
    return sum_of_pieces(chunks, logits, labels)


def cut_logits(chunks: int, module: nn.Module, tokens: Tensor, labels: Tensor, at: At) -> Tensor:
    """The same of a model that calls its head once."""
    logits = module(tokens)
    at("loss")
    return sum_of_pieces(chunks, logits.chunk(chunks, dim=1), labels)


def sum_of_pieces(chunks: int, logits: Sequence[Tensor], labels: Tensor) -> Tensor:
    """The mean over all chunks."""
    count = (labels != IGNORED).sum()
    targets = [chunk.reshape(-1) for chunk in labels.chunk(chunks, dim=1)]
    flat = [chunk.reshape(-1, chunk.size(-1)) for chunk in logits]
    total: Any = 0.0
    for piece, target in zip(flat, targets, strict=True):
        total += functional.cross_entropy(
            piece.float(), target, ignore_index=IGNORED, reduction="sum"
        )
    return total / count


def with_head(chunks: int, module: Any, tokens: Tensor, labels: Tensor, at: At) -> Tensor:
    """The model skips its head, whose gathered weight the loss reads itself."""
    hidden = module(tokens)
    at("loss")
    return sum_with_head(chunks, hidden, module.output.weight, labels)


def sum_with_head(chunks: int, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Projection and loss of a chunk are computed again in backward."""
    count = (labels != IGNORED).sum()
    total: Any = 0.0
    for chunk, target in zip(hidden.chunk(chunks, dim=1), labels.chunk(chunks, dim=1), strict=True):
        total += checkpoint(
            _one_chunk, chunk, weight, target, use_reentrant=False, preserve_rng_state=False
        )
    return total / count


def _one_chunk(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(
        functional.linear(hidden, weight).flatten(0, 1).float(),
        target.flatten(0, 1),
        reduction="sum",
    )


def hugging_face_loss(root: Any, name: str) -> Loss:
    """transformers' models compute their loss inside the root's forward."""
    kind, chunks = _parsed(name)
    if kind == "eager":
        return causal_loss
    if kind == "eager-kept-logits":
        return KeepingOutputs()
    if kind == "hf-upcast":
        root.forward = MethodType(partial(_shifting_forward, True), root)
        return KeepingOutputs()
    if kind in SHIFTING:
        upcasts = kind == "hf-upcast-dropped-logits"
        root.forward = MethodType(partial(_shifting_forward, upcasts), root)
        return causal_loss
    root.forward = MethodType(partial(_chunking_forward, kind, chunks), root)
    return causal_loss


def causal_loss(module: nn.Module, tokens: Tensor, labels: Tensor, at: At) -> Tensor:
    """The model's own loss; its outputs are dropped."""
    return module(input_ids=tokens, labels=labels, use_cache=False).loss


class KeepingOutputs:
    """A loop whose ``logits`` live until they are bound again."""

    def __init__(self) -> None:
        self.held: Any = None

    def __call__(self, module: nn.Module, tokens: Tensor, labels: Tensor, at: At) -> Tensor:
        outputs = module(input_ids=tokens, labels=labels, use_cache=False)
        self.held = outputs.logits
        loss: Tensor = outputs.loss
        return loss


def _shifting_forward(
    upcasts: bool, self: Any, input_ids: Tensor, labels: Tensor, **keys: Any
) -> Any:
    """``forward`` of transformers until 4.48; before 4.46 the model casts, and not the loss."""
    from transformers.modeling_outputs import CausalLMOutputWithPast

    outputs = self.model(input_ids=input_ids, **keys)
    logits = self.lm_head(outputs[0])
    if upcasts:
        logits = logits.float()
    loss = _loss_of_shifted(logits, labels)
    return CausalLMOutputWithPast(loss=loss, logits=logits)


def _loss_of_shifted(logits: Tensor, labels: Tensor) -> Tensor:
    """``ForCausalLMLoss``: the logits are shifted by a copy."""
    logits = logits.float()
    shifted = logits[..., :-1, :].contiguous()
    targets = labels[..., 1:].contiguous()
    shifted = shifted.view(-1, shifted.shape[-1])
    targets = targets.view(-1)
    return functional.cross_entropy(shifted, targets)


def _chunking_forward(
    kind: str, chunks: int, self: Any, input_ids: Tensor, labels: Tensor, **keys: Any
) -> Any:
    """The labels are padded and shifted as ``ForCausalLMLoss`` does."""
    from transformers.modeling_outputs import CausalLMOutputWithPast

    hidden = self.model(input_ids=input_ids, **keys)[0]
    targets = functional.pad(labels, (0, 1), value=IGNORED)[..., 1:].contiguous()
    if kind == "chunked":
        loss = sum_of_pieces(chunks, pieces(chunks, self.lm_head, hidden), targets)
    else:
        loss = sum_with_head(chunks, hidden, self.lm_head.weight, targets)
    return CausalLMOutputWithPast(loss=loss)
