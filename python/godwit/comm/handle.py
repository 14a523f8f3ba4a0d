"""WaitHandle: a message under way, for programs and for TorchScript."""

from typing import Any, List, Optional

import torch


class _Handle:
    """What TorchScript does not see of a WaitHandle."""

    _message: Optional[Any] = None  # a messages.Sent or Awaited, until it was waited for
    _is_numpy: bool = False  # what Wait is to give

    def _of(self, message: Any) -> "WaitHandle":
        self._message = message
        return self  # type: ignore[return-value]


class WaitHandle(_Handle):
    """A message that Isend or Irecv has begun; Wait ends it.

    `dummy` stands for it in JoinDummies.
    """

    def __init__(self, raw: List[torch.Tensor]):
        self._handle = raw

    @property
    def dummy(self) -> torch.Tensor:
        """A tensor without entries that depends on the message, for JoinDummies."""
        return self._handle[0]
