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
        found, hit = self.find(stored)
        return found[hit], programs[hit]

    def pointed_to(self, batch: "Batch", shape: tuple[int, ...]) -> np.ndarray:
        """Return the elements that the lanes of an access point to, also those that are masked off.

        Where a block has as many axes as the tensor, only what has the lane's own place in a tile: a lane past the end
        of one row points to the next row, and is not meant for it.
        """
        if batch.view is None or not self.addresses.size:
            return np.zeros(0, dtype=np.int64)
        found, hit = self.find((batch.view.data_ptr + batch.offsets * batch.view.itemsize).reshape(-1))
        block = batch.step.shape
        if len(block) == len(shape) > 0:
            places = np.unravel_index(found, shape)
            for axis, lane in enumerate(np.indices(block)):
                hit &= places[axis] % block[axis] == np.broadcast_to(lane, batch.shape).reshape(-1)
        return found[hit]

    def find(self, addresses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return an element for each address, and whether it is just there."""
        places = np.searchsorted(self.addresses, addresses).clip(max=self.addresses.size - 1)
        return self.order[places], self.addresses[places] == addresses


def element_addresses(tensor: torch.Tensor) -> np.ndarray:
    """Return the address of every element: int64, shaped like the tensor."""
    addresses = np.full((1,) * tensor.dim(), tensor.data_ptr(), dtype=np.int64)
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        steps = np.arange(size, dtype=np.int64) * stride * tensor.element_size()
        addresses = addresses + steps.reshape([-1 if a == axis else 1 for a in range(tensor.dim())])
    return addresses
