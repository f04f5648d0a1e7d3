"""out = softmax(q @ k.T * scale) @ v for every head, without a matrix of scores in
memory."""

import functools
import math
from collections.abc import Callable

import torch

from ..gpu import is_hopper
from ..gradients import first_derivative, wants_gradient
from ..launch import TensorSpec, custom_op, tensor_spec
from .backward import attention_backward
from .common import DTYPES
from .decode import attention_decode, suits_decode
from .forward import attention_portable, suits_descriptors

LONGEST_HEAD = 256  # elements of a head that a program holds at most
TINIEST = 2.0**-126  # scales up to here may be 0 in fp32, or rounded to a few bits


def visible(M: int, N: int, device: torch.device | None = None) -> torch.Tensor:
    """Return which keys each query sees when attention is causal, [M, N].

    The last query sees the last key.
    """
    return torch.ones(M, N, dtype=torch.bool, device=device).tril(N - M)


def attention_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """The specification: what `attention` must return, up to the rounding of its
    sums."""
    return attention_eager(q.double(), k.double(), v.double(), causal, scale).to(
        q.dtype
    )


def attention_eager(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Return what `attention` returns, by operations of PyTorch.

    They write a matrix of M x N for every head.
    """
    if q.shape[1] != k.shape[1]:
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    scores = q * scale @ k.transpose(2, 3)  # writes MN
    if not causal:
        return (
            torch.softmax(scores, 3) @ v
        )  # softmax reads MN and writes MN, @ reads MN
    M, N = scores.shape[2:]
    hidden = ~visible(M, N, scores.device)
    weights = torch.softmax(
        scores.masked_fill(hidden, torch.finfo(scores.dtype).min), 3
    )
    # In a row that sees no key, all weights are equal by now.
    return weights.masked_fill(hidden, 0) @ v


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Return softmax(q @ k.T * scale) @ v for every head.

    The result is [B, H, M, D], contiguous, of the dtype of q. Scores and sums are kept
    in fp32. There is a gradient, which computes the scores again, and no second
    derivative.

    q: [B, H, M, D]; k, v: [B, H_kv, N, D]; fp16, bf16 or fp32, one dtype, one device,
    any lengths M and N, D from 1 to 256. H is a multiple of H_kv: query head h reads
    key head h // (H // H_kv). Any strides; unless the last is 1, the tensor is copied.
    causal: query i sees the keys j <= i + N - M, so that the last query sees the last
    key. A query that sees no key gives 0, and has the gradient 0.
    scale: any finite number; 1 / sqrt(D) by default.

    On a GPU, up to 16 fp16 or bf16 queries go to `attention_decode`, which shares out
    the keys. On a Hopper GPU, fp16 and bf16 rows of 72 to 128 elements that its copy
    engine can read go to `attention_hopper`, and gradients of 33 to 128 to
    `attention_backward_hopper`: the last bits of the gradient of q may then vary
    between runs, unless torch.use_deterministic_algorithms(True) is set.

    Source: T. Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work
    Partitioning", arXiv 2307.08691, section 3.
    Raises TypeError for anything but tensors, a truth value and a number, and
    ValueError for shapes, dtypes or devices that do not go together.
    """
    check_inputs(q, k, v, causal, scale)
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else float(scale)
    # The kernels take the largest product for the largest score: the scale must be
    # above 0, in fp32 as well.
    if scale < 0:
        q, scale = -q, -scale
    if scale <= TINIEST:
        q, scale = q * 0, 1.0
    if wants_gradient(q, k, v):
        return Attention.apply(q, k, v, causal, scale)
    return attention_forward(laid_out(q), laid_out(k), laid_out(v), causal, scale)[0]


class Attention(torch.autograd.Function):
    """`attention` as autograd sees it."""

    @staticmethod
    def forward(ctx, q, k, v, causal: bool, scale: float) -> torch.Tensor:
        """Return attention, and keep what its gradient needs: nothing as large as the
        scores."""
        q, k, v = map(laid_out, (q, k, v))
        out, lse2 = attention_forward(q, k, v, causal, scale)
        ctx.save_for_backward(q, k, v, out, lse2)
        ctx.causal, ctx.scale = causal, scale
        return out

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of q, k and v."""
        arguments = grad, *ctx.saved_tensors, ctx.causal, ctx.scale
        gradients = first_derivative("attention", attention_backward, *arguments)
        return *gradients, None, None


def uninitialized(q: torch.Tensor, *_) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two results that attention of these queries fills."""
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


@custom_op(uninitialized)
def attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return attention and its lse2, [B, H, M], fp32: log2 of the sum of exp(score)
    over the keys that a query sees, +inf where it sees none.

    q, k, v: as `attention` takes them, elements of a row side by side. scale: above 0.
    """
    return computed(writer_for(*map(tensor_spec, (q, k, v))), q, k, v, causal, scale)


@functools.lru_cache(maxsize=1024)
def writer_for(q: TensorSpec, k: TensorSpec, v: TensorSpec) -> Callable[..., None]:
    """Return the fastest function that writes attention of tensors of these specs."""
    if suits_decode(q, k):
        return attention_decode
    if suits_hopper(q, k, v):
        from .hopper import attention_hopper

        return attention_hopper
    return attention_portable


def attention_plain(
    q, k, v, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `attention_forward` returns, with the kernels that serve any GPU."""
    return computed(attention_portable, q, k, v, causal, scale)


def computed(
    write: Callable, q, k, v, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two results that `write` fills."""
    out, lse2 = uninitialized(q)
    if out.numel() > 0:
        write(q, k, v, out, lse2, causal, scale)
    return out, lse2


def suits_hopper(q: TensorSpec, k: TensorSpec, v: TensorSpec) -> bool:
    """Return whether `attention_hopper` can compute this, and faster.

    For rows of at most 64 elements it is slower than the portable kernel.
    """
    return suits_descriptors(q, k, v) and is_hopper(q.device) and 64 < q.shape[3] <= 128


def laid_out(x: torch.Tensor) -> torch.Tensor:
    """Return x with the elements of a row side by side: x itself, or a copy."""
    x = x.resolve_neg()
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def check_inputs(q, k, v, causal, scale) -> None:
    """Raise TypeError or ValueError, naming what is wrong, unless `attention` can take
    these arguments."""
    for name, t in {"q": q, "k": k, "v": v}.items():
        check_tensor(name, t, q)
    check_shapes(q.shape, k.shape, v.shape)
    if not isinstance(causal, bool):
        raise TypeError(f"causal must be True or False, not a {type(causal).__name__}")
    if scale is not None and (
        not isinstance(scale, (int, float)) or isinstance(scale, bool)
    ):
        raise TypeError(f"scale must be a number or None, not a {type(scale).__name__}")
    if scale is not None and not math.isfinite(scale):
        raise ValueError(f"scale must be finite, not {scale}")


def check_tensor(name: str, t, q) -> None:
    """Raise TypeError or ValueError unless t is a tensor like q, which comes first."""
    if not isinstance(t, torch.Tensor):
        kind = type(t).__name__
        raise TypeError(f"attention takes tensors, and {name} is a {kind}")
    if t.layout != torch.strided:
        raise ValueError(f"attention takes dense tensors, and {name} is {t.layout}")
    if t.device != q.device:
        found = f"q is on {q.device}, {name} on {t.device}"
        raise ValueError(f"q, k and v must be on one device, and {found}")
    if t.dtype != q.dtype or t.dtype not in DTYPES:
        wanted = f"one dtype of {', '.join(map(str, DTYPES))}"
        found = f"{name} has {t.dtype}" + f", q {q.dtype}" * (t.dtype != q.dtype)
        raise ValueError(f"q, k and v must have {wanted}, and {found}")


def check_shapes(q: torch.Size, k: torch.Size, v: torch.Size) -> None:
    """Raise ValueError, naming the shapes, unless they go together."""
    if len(q) != 4 or len(k) != 4 or k != v or (q[0], q[3]) != (k[0], k[3]):
        wanted = "[B, H, M, D], [B, H_kv, N, D] and [B, H_kv, N, D]"
        shapes = f"{tuple(q)}, {tuple(k)} and {tuple(v)}"
        raise ValueError(f"q, k and v must be {wanted}, not {shapes}")
    if q[1] != k[1] and (k[1] == 0 or q[1] % k[1] != 0):
        heads = f"the {k[1]} heads of k and v"
        raise ValueError(f"the {q[1]} heads of q must be a multiple of {heads}")
    if not 1 <= q[3] <= LONGEST_HEAD:
        raise ValueError(f"a head must have 1 to {LONGEST_HEAD} elements, not {q[3]}")


def attention_bytes(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
) -> int:
    """Return the bytes that must cross memory once: q, k and v read, the result
    written."""
    return (2 * q.numel() + k.numel() + v.numel()) * q.element_size()


def attention_flops(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
) -> int:
    """Return the floating-point operations of both products: four for each pair that is
    seen and each of D."""
    B, H, M, D = q.shape
    N = k.shape[2]
    seen = min(M, N)  # queries with at least one key to see
    pairs = seen * (N - seen) + seen * (seen + 1) // 2 if causal else M * N
    return 4 * B * H * pairs * D
