"""What training keeps in memory: the bytes that autograd holds from a forward pass until its backward."""

from collections.abc import Callable

import torch


def kept_bytes(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> int:
    """Return the bytes that one forward pass leaves in memory for backward, beyond its inputs and its result.

    On a GPU the allocator tells, whose blocks are multiples of 512 bytes. On a CPU the tensors that autograd saves are
    added up. Parameters that are leaves count as inputs: they were there before.
    """
    on_gpu = any(tensor.is_cuda for tensor in inputs)
    return allocated_by(function, *inputs) if on_gpu else saved_by(function, *inputs)


def allocated_by(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> int:
    """Return by how many bytes the memory in use grows in a forward pass on a CUDA GPU, without those of the result."""
    function(*inputs)  # what is allocated once and for all, such as cuBLAS's workspace, is none of its doing
    before = torch.cuda.memory_allocated()
    result = function(*inputs)
    return torch.cuda.memory_allocated() - before - result.untyped_storage().nbytes()


def saved_by(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> int:
    """Return the bytes of the tensors that autograd saves in a forward pass: each storage once."""
    storages: dict[int, int] = {}
    saved = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        base = tensor if tensor._base is None else tensor._base
        if not (base.is_leaf and base.requires_grad):
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        saved.append(tensor)  # held, so that no two storages can have one address
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = function(*inputs)
    for tensor in (result, *inputs):
        storages.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(storages.values())
