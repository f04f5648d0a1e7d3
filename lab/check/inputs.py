"""Freeze the inputs of a call, so that they can be sent, and thaw them between guard bands.

Tensors keep their strides, offsets and shared storages, so that an answer meets them as the case made them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

GUARD = 1 << 14  # bytes on either side of every tensor an answer sees; for more than 2**15 torch starts its threads
GUARD_BYTE = 0x5C
SPARSE = 1 << 26  # a storage of more bytes is kept as its views' elements: the rest may never have been touched


@dataclass(frozen=True)
class FrozenStorage:
    """The bytes behind one or more tensors; `contents` is None for a sparse one, whose tensors keep their elements."""

    nbytes: int
    device: str
    contents: np.ndarray | None


@dataclass(frozen=True)
class FrozenTensor:
    """Where a tensor lies in its storage, counted in elements. `elements` are its bytes if the storage is sparse."""

    storage: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    elements: np.ndarray | None

    @property
    def layout(self) -> tuple:
        return self.storage, self.dtype, self.shape, self.strides, self.offset


@dataclass(frozen=True)
class Frozen:
    """The arguments of one call as plain data: tensors keep their strides, offsets and shared storages."""

    arguments: tuple
    storages: tuple[FrozenStorage, ...]

    @property
    def layout(self) -> tuple:
        """What must agree for the tensors of one call to be filled with the contents of another."""
        tensors = tuple(a.layout if isinstance(a, FrozenTensor) else None for a in self.arguments)
        return tensors, tuple((s.nbytes, s.device) for s in self.storages)


def freeze(arguments: Iterable) -> Frozen:
    """Return a private copy of the arguments of a call, from which any number of equal calls can be made."""
    storages: list[FrozenStorage] = []
    known: dict[int, int] = {}  # address of a storage → its number
    frozen: list = []
    for argument in arguments:
        if not isinstance(argument, torch.Tensor):
            frozen.append(argument)
            continue
        storage = argument.untyped_storage()
        if storage.data_ptr() not in known or storage.nbytes() == 0:
            known[storage.data_ptr()] = len(storages)
            dense = storage.nbytes() <= SPARSE
            contents = to_bytes(storage_bytes(storage, argument.device)) if dense else None
            storages.append(FrozenStorage(storage.nbytes(), str(argument.device), contents))
        index = known[storage.data_ptr()]
        elements = to_bytes(without_repeats(argument)) if storages[index].contents is None else None
        shape, strides, offset = tuple(argument.shape), argument.stride(), int(argument.storage_offset())
        frozen.append(FrozenTensor(index, argument.dtype, shape, strides, offset, elements))
    return Frozen(tuple(frozen), tuple(storages))


def storage_bytes(storage: torch.UntypedStorage, device: torch.device) -> torch.Tensor:
    """Return the storage as a tensor of bytes that shares its memory."""
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage, 0, (storage.nbytes(),), (1,))


def to_bytes(tensor: torch.Tensor) -> np.ndarray:
    """Return the elements of a tensor, in order, as a new array of bytes."""
    if tensor.numel() == 0:  # NumPy gives nothing a stride of 0, which no other dtype can view
        return np.empty(0, dtype=np.uint8)
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().copy()


def from_bytes(contents: np.ndarray, dtype: torch.dtype, shape: Iterable[int]) -> torch.Tensor:
    """Return the CPU tensor of which `to_bytes` gave the bytes."""
    if contents.size == 0:  # for the same reason
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.from_numpy(contents.copy()).view(dtype).reshape(tuple(shape))


def without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    """Return the view of an expanded tensor in which every element stands once."""
    for axis, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


class LiveInputs:
    """Tensors made from frozen ones, between guard bands, that the answer may touch."""

    def __init__(self, frozen: Frozen):
        self.frozen = frozen
        self.buffers = [guarded_buffer(s.nbytes, torch.device(s.device)) for s in frozen.storages]
        self.arguments = tuple(self.place(a) if isinstance(a, FrozenTensor) else a for a in frozen.arguments)
        self.refill(frozen)

    def place(self, tensor: FrozenTensor) -> torch.Tensor:
        """Return the tensor's view of its guarded buffer."""
        return view_of(self.buffers[tensor.storage], tensor.dtype, tensor.offset, tensor.shape, tensor.strides)

    def refill(self, frozen: Frozen) -> None:
        """Put new contents behind the same pointers; plain arguments are replaced."""
        for buffer, storage in zip(self.buffers, frozen.storages, strict=True):
            if storage.contents is not None:
                buffer[GUARD : GUARD + storage.nbytes].copy_(torch.from_numpy(storage.contents))
        for tensor, cold in zip(self.arguments, frozen.arguments, strict=True):
            if isinstance(cold, FrozenTensor) and cold.elements is not None:
                target = without_repeats(tensor)
                target.copy_(from_bytes(cold.elements, cold.dtype, target.shape))
        pairs = zip(self.arguments, frozen.arguments, strict=True)
        self.arguments = tuple(live if isinstance(cold, FrozenTensor) else cold for live, cold in pairs)
        self.frozen = frozen

    def changed(self) -> list[int]:
        """Return the positions of the tensors whose memory, the whole storage, no longer holds what was put there."""
        return [
            position
            for position, (live, cold) in enumerate(zip(self.arguments, self.frozen.arguments, strict=True))
            if isinstance(cold, FrozenTensor) and self.differs(live, cold)
        ]

    def differs(self, live: torch.Tensor, cold: FrozenTensor) -> bool:
        storage = self.frozen.storages[cold.storage]
        if storage.contents is None:
            return cold.elements is None or not np.array_equal(to_bytes(without_repeats(live)), cold.elements)
        now = to_bytes(self.buffers[cold.storage][GUARD : GUARD + storage.nbytes])
        return not np.array_equal(now, storage.contents)


def guarded_buffer(nbytes: int, device: torch.device) -> torch.Tensor:
    """Return `nbytes` unwritten bytes between two guard bands."""
    buffer = torch.empty(GUARD + nbytes + GUARD, dtype=torch.uint8, device=device)
    buffer[:GUARD].fill_(GUARD_BYTE)
    buffer[GUARD + nbytes :].fill_(GUARD_BYTE)
    return buffer


def view_of(buffer: torch.Tensor, dtype: torch.dtype, offset: int, shape, strides) -> torch.Tensor:
    """Return a tensor `offset` elements past the first guard band of a buffer."""
    empty = torch.empty(0, dtype=dtype, device=buffer.device)
    return empty.set_(buffer.untyped_storage(), GUARD // empty.element_size() + offset, tuple(shape), tuple(strides))


def guards_broken(buffer: torch.Tensor) -> bool:
    """Return whether anything was written into the guard bands of a buffer."""
    bands = torch.stack([buffer[:GUARD], buffer[-GUARD:]])
    return bool((bands != GUARD_BYTE).any())
