"""What `tile measure decode` times: attention of few queries to many keys, as when a text is continued."""

from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels.attention import attention, attention_bytes, attention_flops, attention_plain, attention_reference
from lab.device import DEVICE
from lab.measure.recipe import Recipe, Workload


def heads(B: int, H: int, KV: int, M: int, N: int, D: int) -> Workload:
    """Normal random queries, keys and values."""

    def make(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        options = {"generator": generator, "device": DEVICE, "dtype": torch.bfloat16}
        return tuple(torch.randn(B, heads, rows, D, **options) for heads, rows in ((H, M), (KV, N), (KV, N)))

    return Workload({"B": B, "H": H, "KV": KV, "M": M, "N": N, "D": D}, "bf16", make)


def plain(q, k, v) -> torch.Tensor:
    """Return attention by a program for each tile of queries."""
    return attention_plain(q, k, v, False, q.shape[-1] ** -0.5)[0]


RECIPE = Recipe(
    op="decode",
    workloads=[
        heads(1, 32, 8, 1, 32_768, 128),
        heads(16, 32, 8, 1, 4096, 128),
        heads(64, 32, 8, 1, 4096, 128),
        heads(1, 32, 32, 16, 8192, 64),
    ],
    variants={
        "torch": partial(scaled_dot_product_attention, enable_gqa=True),
        "triton_plain": plain,
        "triton": attention,
    },
    reference=lambda q, k, v: attention_reference(q.double(), k.double(), v.double()),
    bytes=attention_bytes,
    flops=attention_flops,
)
