"""Keys of a Hugging Face config: looked up by name, noted where they are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.errors import UnsupportedError, UserError, did_you_mean


class Keys:
    """The keys of one config of a ``model_type``.

    What is wrong is collected, so that all is told at once: keys that are ``missing``, values that
    are ``wrong``, and settings that are ``unsupported``.
    """

    def __init__(self, config: Mapping[str, Any], kind: str) -> None:
        self.config, self.kind = config, kind
        self.missing: list[str] = []
        self.wrong: list[str] = []
        self.unsupported: list[str] = []

    def need(self, key: str) -> int:
        """A positive integer that must be there (1 where it is not: an error follows)."""
        found = self.config.get(key)
        if found is None:
            self.missing.append(key)
            return 1
        if type(found) is not int or found < 1:
            self.wrong.append(f"{key}: {found!r}; a positive integer is needed")
            return 1
        return found

    def get(self, key: str, default: Any) -> Any:
        """A key, or the class' default where it is absent or null."""
        found = self.config.get(key)
        return default if found is None else found

    def refuse(self, key: str, *allowed: Any, default: Any) -> None:
        """Accept only the settings that the writer of this family knows."""
        found = self.get(key, default)
        if found not in allowed:
            shown = " or ".join(map(repr, allowed))
            self.unsupported.append(f"{key}: {found!r} is not supported, {shown} is")

    def activation(self, key: str, default: str) -> str:
        """A key that names an activation."""
        from simulator.model.ops.activations import ACTIVATIONS

        found = str(self.get(key, default))
        if found not in ACTIVATIONS:
            nearest = did_you_mean(found, ACTIVATIONS)
            self.unsupported.append(f"{key}: {found!r} is not supported{nearest}")
            return default
        return found

    def partial_rotary(self, *old: str, default: float) -> float:
        """The turned part of a head: in ``rope_parameters``, or under an older key."""
        rope = self.get("rope_parameters", {})
        for found in (rope.get("partial_rotary_factor"), *(self.config.get(key) for key in old)):
            if found is not None:
                return float(found)
        return default

    def raise_any(self) -> None:
        """Raise what was found.

        Raises:
            UserError: keys are missing, or values wrong.
            UnsupportedError: all that is amiss is what this version cannot write.
        """
        lacks = [f"it lacks {', '.join(self.missing)}"] if self.missing else []
        found = [*lacks, *self.wrong, *self.unsupported]
        if found:
            error = UserError if self.missing or self.wrong else UnsupportedError
            raise error(f"config of model_type {self.kind!r}: {'; '.join(found)}")
