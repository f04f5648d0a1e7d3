"""What kernels ask of a GPU before they choose how to run."""

import torch

# Compute capabilities of GPUs with TMA and a large shared memory.
WITH_COPY_ENGINE = ((9, 0), (10, 0), (10, 3))


def is_hopper(device: torch.device) -> bool:
    """Return whether a device is a GPU that the Gluon kernels are written for."""
    return is_nvidia(device) and torch.cuda.get_device_capability(device) == (9, 0)


def has_copy_engine(device: torch.device) -> bool:
    """Return whether a device is a GPU whose copy engine (TMA) the kernels use."""
    if not is_nvidia(device):
        return False
    return torch.cuda.get_device_capability(device) in WITH_COPY_ENGINE


def is_nvidia(device: torch.device) -> bool:
    """Return whether a device is an NVIDIA GPU.

    The capability does not tell: an AMD MI200 reports that of a Hopper GPU.
    """
    return device.type == "cuda" and torch.version.hip is None


def shared_limit(device: torch.device) -> int:
    """Return the bytes of shared memory that one program may have.

    Without a GPU there is no limit.
    """
    if device.type != "cuda":
        return 2**63
    properties = torch.cuda.get_device_properties(device)
    return properties.shared_memory_per_block_optin  # type: ignore[attr-defined]
