"""A named place in the model where a value can be seen or replaced.

A tap returns its input. Its name is its path in the tree of modules, and PyTorch's own forward hooks do the
watching, so the model has no "return attention" flags and nothing to keep in step with them.

Axes: B batch · T query positions · S key positions · H heads · G key and value heads · D d_model · K d_head ·
F d_ff · V vocabulary · C classes. HK is H heads of K numbers side by side.
"""

from torch import Tensor, nn


class Tap(nn.Module):
    """Identity; `axes` names the dimensions of what passes, for instance "B H T S"."""

    def __init__(self, axes: str) -> None:
        super().__init__()
        self.axes = tuple(axes.split())

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` itself; hooks see it on the way."""
        return x

    @property
    def watched(self) -> bool:
        """Whether somebody looks at this value, or replaces it."""
        return bool(self._forward_hooks or self._forward_pre_hooks)

    def extra_repr(self) -> str:
        """Show the axes in the printed model."""
        return " ".join(self.axes)
