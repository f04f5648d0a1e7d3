"""Which elements of a tensor an access reached, found by their addresses."""

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from lab.machine.record import Batch


class Elements:
    """The elements of a tensor, to be found by their addresses."""

    def __init__(self, addresses: np.ndarray, size: int):
        self.order = np.argsort(addresses, axis=None, kind="stable")
        self.addresses = addresses.reshape(-1)[self.order]
        self.size = size

    def reached_by(self, batch: "Batch") -> tuple[np.ndarray, np.ndarray]:
        """Return which elements, counted in order, an access reached, one for each lane, and the programs it is of."""
        nothing = np.zeros(0, dtype=np.int64)
        view = batch.view
        if view is None or not self.addresses.size:
            return nothing, nothing
        if view.end <= self.addresses[0] or view.data_ptr > self.addresses[-1]:
            return nothing, nothing
        offsets, programs, _ = batch.inside()
        stored = view.data_ptr + offsets * view.itemsize
        if batch.step.size > self.size:  # one access covers several elements
            covered = np.arange(0, batch.step.size, self.size)
            stored, programs = np.add.outer(stored, covered).reshape(-1), np.repeat(programs, len(covered))
        found = np.searchsorted(self.addresses, stored).clip(max=self.addresses.size - 1)
        hit = self.addresses[found] == stored
        return self.order[found[hit]], programs[hit]


def element_addresses(tensor: torch.Tensor) -> np.ndarray:
    """Return the address of every element: int64, shaped like the tensor."""
    addresses = np.full((1,) * tensor.dim(), tensor.data_ptr(), dtype=np.int64)
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        steps = np.arange(size, dtype=np.int64) * stride * tensor.element_size()
        addresses = addresses + steps.reshape([-1 if a == axis else 1 for a in range(tensor.dim())])
    return addresses
