"""What `tile measure attention` times: long sequences, causal and not, beside every attention that PyTorch offers."""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
import triton
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from kernels.attention import attention, attention_bytes, attention_eager, attention_flops, attention_plain
from kernels.attention.common import LOG2_E
from kernels.attention.forward import attention_kernel
from kernels.ladders.attention import attention_causal_kernel, attention_tile_kernel
from lab.device import DEVICE
from lab.measure.recipe import Recipe, Unavailable, Workload

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
LADDER = (4, 32, 4096)  # batches, heads and length at which the rungs are timed
SMALL = 2048  # length up to which matrices of scores are written
RUNG = {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3}


def sequences(B: int, H: int, N: int, D: int, causal: bool, dtype: str = "bf16", kv: int | None = None) -> Workload:
    """Queries, keys and values of normal random numbers; kv: heads of the keys and values, if fewer than H."""

    def make(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool]:
        options = {"generator": generator, "device": DEVICE, "dtype": DTYPES[dtype]}
        q, k, v = (torch.randn(B, heads, N, D, **options) for heads in (H, kv or H, kv or H))
        return q, k, v, causal

    grouped = {} if kv is None else {"KV": kv}
    return Workload({"B": B, "H": H, **grouped, "N": N, "D": D, "causal": int(causal)}, dtype, make)


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Attention in float64, one head at a time, since the scores of all would not fit in memory."""
    B, H = q.shape[:2]
    group = H // k.shape[1]
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    for b in range(B):
        for h in range(H):
            one = (t[b : b + 1, head : head + 1].double() for t, head in ((q, h), (k, h // group), (v, h // group)))
            out[b, h] = attention_eager(*one, causal)[0, 0]
    return out


def torch_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """PyTorch's own choice among its kernels."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def sdpa(backend: SDPBackend, longest: int | None = None) -> Callable:
    """Return PyTorch's attention by one of its backends, for sequences up to a length."""

    def variant(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        if longest is not None and q.shape[2] > longest:
            raise Unavailable("its scores fill the memory")
        try:
            with sdpa_kernel(backend):
                return torch_attention(q, k, v, causal)
        except RuntimeError as error:
            raise Unavailable(str(error).splitlines()[0]) from error

    return variant


@functools.lru_cache(maxsize=1)
def flex_for(shape: torch.Size, causal: bool) -> Callable:
    """Return flex_attention for one workload: compiled anew, and its block mask made, before the clock starts."""
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    N = shape[2]
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, N, N, device=DEVICE) if causal else None
    return functools.partial(compiled, block_mask=mask)


def flex(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """PyTorch's attention out of parts that torch.compile puts together, which takes it seconds for every size."""
    if q.dtype != torch.bfloat16 or k.shape != q.shape or q.shape[2] % 4096 != 0:
        raise Unavailable("it is compiled for the main sizes only")
    return flex_for(q.shape, causal)(q, k, v)


def rung(launch: Callable) -> Callable:
    """Return a variant that exists for the sizes of the ladder only; all rungs have the same tiles."""

    def variant(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        B, H, N, D = q.shape
        if (B, H, N) != LADDER or k.shape != q.shape or q.dtype != torch.bfloat16:
            raise Unavailable("the ladder is climbed at other sizes")
        out = torch.empty_like(q)
        strides = [stride for t in (q, k, v, out) for stride in t.stride()[:3]]
        launch(q, k, v, out, triton.cdiv(N, RUNG["BLOCK_M"]), strides, {"D": D, "IS_CAUSAL": causal, **RUNG})
        return out

    return variant


def tile(q, k, v, out, tiles, strides, options):
    B, H, N, D = q.shape
    attention_tile_kernel[(tiles, B * H)](q, k, v, out, D**-0.5, H, N, N, *strides, **options)


def causal_loops(q, k, v, out, tiles, strides, options):
    B, H, N, D = q.shape
    attention_causal_kernel[(tiles, B * H)](q, k, v, out, D**-0.5, H, N, N, *strides, **options)


def exp2(q, k, v, out, tiles, strides, options):
    B, H, N, D = q.shape
    lse2 = torch.empty(q.shape[:3], device=q.device)
    sizes = (D**-0.5 * LOG2_E.value, H, 1, N, N)
    attention_kernel[(tiles * B * H,)](q, k, v, out, lse2, *sizes, *strides[:9], BLOCK_D=D, **options)


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """The kernels that serve on any GPU."""
    return attention_plain(q, k, v, causal, q.shape[3] ** -0.5)[0]


BOTH = (False, True)

RECIPE = Recipe(
    op="attention",
    workloads=[
        *(sequences(1, 32, 4096, 128, causal) for causal in BOTH),
        *(sequences(4, 32, 4096, 128, causal) for causal in BOTH),
        *(sequences(4, 32, 4096, 64, causal) for causal in BOTH),
        *(sequences(1, 32, 16384, 128, causal) for causal in BOTH),
        sequences(4, 32, 4096, 128, True, dtype="fp16"),
        sequences(4, 32, 4096, 128, True, kv=8),
        sequences(4, 32, 4001, 128, True),
        sequences(1, 32, SMALL, 64, False),
    ],
    variants={
        "torch": torch_attention,
        "sdpa_flash": sdpa(SDPBackend.FLASH_ATTENTION),
        "sdpa_cudnn": sdpa(SDPBackend.CUDNN_ATTENTION),
        "sdpa_math": sdpa(SDPBackend.MATH, longest=SMALL),
        "flex": flex,
        "tile": rung(tile),
        "causal": rung(causal_loops),
        "exp2": rung(exp2),
        "triton_plain": plain,
        "triton": attention,
    },
    reference=reference,
    bytes=attention_bytes,
    flops=attention_flops,
)
