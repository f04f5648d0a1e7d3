"""Answers to the tasks of `solutions/attention.py` that the check must reject, each for
its reason.
"""

import math

import torch
import triton
import triton.language as tl

from lab.task import wrong
from solutions import attention as right
from solutions.attention import absorb, load_rows
from solutions.vector_add import strided_copy

# Weighted mean: what a larger score does to what was summed before


@triton.jit
def weighted_mean_kernel(
    x_ptr, v_ptr, out_ptr, N, stride_xm, FAULT: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    top = -float("inf")
    total = 0.0
    acc = 0.0
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        padding = 0.0 if FAULT == "padding" else -float("inf")
        x = tl.load(x_ptr + row * stride_xm + offs, mask=offs < N, other=padding).to(
            tl.float32
        )
        v = tl.load(v_ptr + offs, mask=offs < N, other=0.0).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, 0))
        factor = (
            tl.exp(new_top - top) if FAULT == "upside down" else tl.exp(top - new_top)
        )
        powers = tl.exp(x - new_top)
        acc = acc * (1.0 if FAULT == "acc" else factor) + tl.sum(powers * v, 0)
        total = total * (1.0 if FAULT == "total" else factor) + tl.sum(powers, 0)
        if FAULT == "divides every time":
            acc = acc / total
        top = new_top
    tl.store(out_ptr + row, acc if FAULT == "never divides" else acc / total)


def mean_with(fault, x, v):
    """Run the kernel with one fault and return its output."""
    M, N = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device)
    weighted_mean_kernel[(M,)](x, v, out, N, x.stride(0), fault, BLOCK=32)
    return out


@wrong(
    "weighted_mean",
    reason="wrong-values",
    cause="`acc` is not corrected when a block of 32",
)
def corrects_the_sum_alone(x, v):
    return mean_with("acc", x, v)


@wrong(
    "weighted_mean",
    reason="wrong-values",
    cause="`total` is not corrected when a block of 32",
)
def corrects_the_values_alone(x, v):
    return mean_with("total", x, v)


@wrong("weighted_mean", reason="not-finite", cause="`factor` becomes inf")
def turns_the_factor_upside_down(x, v):
    return mean_with("upside down", x, v)


@wrong("weighted_mean", reason="wrong-values", cause="divided in every step of 32")
def divides_in_every_step(x, v):
    return mean_with("divides every time", x, v)


@wrong("weighted_mean", reason="wrong-values", cause="never divided")
def never_divides(x, v):
    return mean_with("never divides", x, v)


@wrong("weighted_mean", reason="wrong-values", cause="lanes past the end of")
def gives_missing_scores_a_weight(x, v):
    return mean_with("padding", x, v)


@triton.jit
def weighted_mean_plain_kernel(
    x_ptr, v_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    acc = 0.0
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row * stride_xm + offs, mask=offs < N, other=-float("inf")
        ).to(tl.float32)
        v = tl.load(v_ptr + offs, mask=offs < N, other=0.0).to(tl.float32)
        total += tl.sum(tl.exp(x), 0)
        acc += tl.sum(tl.exp(x) * v, 0)
    tl.store(out_ptr + row, acc / total)


@wrong(
    "weighted_mean",
    reason="not-finite",
    cause="it is finite when every input is within",
)
def raises_without_a_maximum(x, v):
    M, N = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device)
    weighted_mean_plain_kernel[(M,)](x, v, out, N, x.stride(0), BLOCK=32)
    return out


@wrong("weighted_mean", reason="torch")
def torch_makes_the_weights(x, v):
    return torch.softmax(x, 1) @ v


# Causal attention: who sees whom, and how far the loop goes


@triton.jit
def causal_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, M, N, scale, stride_qm, stride_kn, stride_vn,
    FAULT: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    q = load_rows(q_ptr, offs_m, M, stride_qm, D)
    top = tl.full(
        (BLOCK_M,), -float("inf") if FAULT == "starts at -inf" else -1e30, tl.float32
    )
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    end = tl.minimum(N, first + BLOCK_M + N - M)
    if FAULT == "visits all":
        end = tl.maximum(N, end)
    if FAULT == "stops early":
        end = tl.minimum(N, first + N - M)
    for start in range(0, end, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, offs_n, N, stride_kn, D)
        v = load_rows(v_ptr, offs_n, N, stride_vn, D)
        ahead = (
            offs_n[None, :] - offs_m[:, None] - (0 if FAULT == "top left" else N - M)
        )
        seen = (offs_n < N)[None, :] & (
            ahead <= (-1 if FAULT == "strictly before" else 0)
        )
        if FAULT == "looks ahead":
            seen = (offs_n < N)[None, :] & (offs_m[:, None] >= 0)
        if FAULT == "looks only ahead":
            seen = (offs_n < N)[None, :] & (ahead >= 0)
        scores = (1.0 if FAULT == "no scale" else scale) * tl.dot(
            q, tl.trans(k), input_precision="ieee"
        )
        top, total, acc = absorb(
            top, total, acc, tl.where(seen, scores, -float("inf")), v
        )
    out = (
        acc
        / (total if FAULT == "divides by 0" else tl.where(total > 0, total, 1.0))[
            :, None
        ]
    )
    out_ptrs = out_ptr + offs_m[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out_ptrs, out, mask=(offs_m < M)[:, None])


def causal_with(fault, q, k, v):
    """Run the kernel with one fault and return its output."""
    (M, D), N = q.shape, k.shape[0]
    out = torch.empty((M, D), dtype=q.dtype, device=q.device)
    strides = (q.stride(0), k.stride(0), v.stride(0))
    causal_kernel[(triton.cdiv(M, 16),)](
        q, k, v, out, M, N, D**-0.5, *strides, fault, D=D, BLOCK_M=16, BLOCK_N=16
    )
    return out


@wrong("causal_attention", reason="wrong-values", cause="queries see every key that")
def looks_ahead(q, k, v):
    return causal_with("looks ahead", q, k, v)


@wrong("causal_attention", reason="wrong-values", cause="counted from the first key")
def counts_keys_from_the_top_left(q, k, v):
    return causal_with("top left", q, k, v)


@wrong("causal_attention", reason="wrong-values", cause="does not see its own key")
def does_not_see_its_own_key(q, k, v):
    return causal_with("strictly before", q, k, v)


@wrong("causal_attention", reason="not-finite", cause="it is finite when `v` is")
def visits_every_tile(q, k, v):
    return causal_with("visits all", q, k, v)


@wrong(
    "causal_attention", reason="wrong-values", cause="the loop ends before the diagonal"
)
def stops_before_the_diagonal(q, k, v):
    return causal_with("stops early", q, k, v)


@wrong(
    "causal_attention",
    reason="not-finite",
    cause="0 is right there whatever the inputs hold",
)
def subtracts_infinity_from_infinity(q, k, v):
    return causal_with("starts at -inf", q, k, v)


@wrong(
    "causal_attention",
    reason="not-finite",
    cause="0 is right there whatever the inputs hold",
)
def divides_nothing_by_nothing(q, k, v):
    return causal_with("divides by 0", q, k, v)


@wrong("causal_attention", reason="wrong-values", cause="not divided by the root of D")
def forgets_the_scale(q, k, v):
    return causal_with("no scale", q, k, v)


@wrong("causal_attention", reason="torch")
def torch_attends(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[
        0
    ]


# Log-sum-exp: from what the loop leaves to the number


@triton.jit
def lse_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, M, N, scale, stride_qm, stride_kn, stride_vn,
    FAULT: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = offs_m < M
    q = load_rows(q_ptr, offs_m, M, stride_qm, D)
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, offs_n, N, stride_kn, D)
        v = load_rows(v_ptr, offs_n, N, stride_vn, D)
        scores = scale * tl.dot(q, tl.trans(k), input_precision="ieee")
        top, total, acc = absorb(
            top, total, acc, tl.where((offs_n < N)[None, :], scores, -float("inf")), v
        )
    out_ptrs = out_ptr + offs_m[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out_ptrs, acc / total[:, None], mask=mask_m[:, None])
    lse = top + tl.log(total)
    if FAULT == "no maximum":
        lse = tl.log(total)
    elif FAULT == "maximum alone":
        lse = top
    elif FAULT == "base two":
        lse = top + tl.log2(total)
    elif FAULT == "plain powers":
        lse = tl.log(total * tl.exp(top))
    if FAULT == "no mask":
        tl.store(lse_ptr + offs_m, lse)
    elif FAULT != "no store":
        tl.store(lse_ptr + offs_m, lse, mask=mask_m)


def lse_with(fault, q, k, v, dtype=torch.float32):
    """Run the kernel with one fault and return its outputs."""
    (M, D), N = q.shape, k.shape[0]
    out = torch.empty((M, D), dtype=q.dtype, device=q.device)
    lse = torch.empty(M, dtype=dtype, device=q.device)
    strides = (q.stride(0), k.stride(0), v.stride(0))
    grid = (triton.cdiv(M, 16),)
    lse_kernel[grid](
        q, k, v, out, lse, M, N, D**-0.5, *strides, fault, D=D, BLOCK_M=16, BLOCK_N=16
    )
    return out, lse


@wrong("attention_lse", reason="wrong-values", cause="the maximum is missing")
def forgets_the_maximum(q, k, v):
    return lse_with("no maximum", q, k, v)


@wrong("attention_lse", reason="wrong-values", cause="the maximum alone")
def keeps_the_maximum_alone(q, k, v):
    return lse_with("maximum alone", q, k, v)


@wrong("attention_lse", reason="wrong-values", cause="base 2")
def mixes_two_bases(q, k, v):
    return lse_with("base two", q, k, v)


@wrong(
    "attention_lse",
    reason="not-finite",
    cause="it is finite when every input is within",
)
def undoes_the_maximum_before_the_logarithm(q, k, v):
    return lse_with("plain powers", q, k, v)


@wrong("attention_lse", reason="out-of-bounds", cause="this store has no mask")
def stores_for_queries_that_do_not_exist(q, k, v):
    return lse_with("no mask", q, k, v)


@wrong("attention_lse", reason="not-written", cause="no store of a kernel leads there")
def forgets_to_store(q, k, v):
    return lse_with("no store", q, k, v)


@wrong("attention_lse", reason="dtype")
def rounds_to_the_dtype_of_the_queries(q, k, v):
    return lse_with("", q, k, v, dtype=q.dtype)


@wrong("attention_lse", reason="not-a-tensor")
def returns_one_of_two(q, k, v):
    return right.attention_lse(q, k, v)[0]


@wrong("attention_lse", reason="shape")
def returns_a_column(q, k, v):
    out, lse = right.attention_lse(q, k, v)
    return out, lse[:, None]


CACHE = {}


@wrong("attention_lse", reason="stale")
def remembers_by_pointer(q, k, v):
    key = (q.data_ptr(), q.shape, k.shape, q.dtype)
    if key not in CACHE:
        CACHE[key] = right.attention_lse(q, k, v)
    return CACHE[key]


# Sliding window: both ends of the loop


@triton.jit
def window_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, T, window, scale, stride_qm, stride_kn, stride_vn,
    FAULT: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    q = load_rows(q_ptr, offs_m, T, stride_qm, D)
    top = tl.full(
        (BLOCK_M,), -float("inf") if FAULT == "starts at -inf" else -1e30, tl.float32
    )
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    begin = tl.maximum(0, first - window + 1) // BLOCK_N * BLOCK_N
    end = tl.minimum(T, first + BLOCK_M)
    if FAULT == "begins at 0":
        begin = begin * 0
    if FAULT == "begins below 0":
        begin = first - window + 1
    if FAULT == "begins a tile late":
        begin = tl.minimum(begin + BLOCK_N, first)
    if FAULT == "goes to the end":
        end = tl.maximum(T, end)
    for start in range(begin, end, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, offs_n, T, stride_kn, D)
        v = load_rows(v_ptr, offs_n, T, stride_vn, D)
        back = offs_m[:, None] - offs_n[None, :]
        seen = (back >= 0) & (back < window)
        if FAULT == "one too many":
            seen = (back >= 0) & (back <= window)
        if FAULT == "no lower bound":
            seen = back >= 0
        if FAULT == "looks ahead":
            seen = (offs_n < T)[None, :] & (back < window)
        scores = scale * tl.dot(q, tl.trans(k), input_precision="ieee")
        top, total, acc = absorb(
            top, total, acc, tl.where(seen, scores, -float("inf")), v
        )
    out_ptrs = out_ptr + offs_m[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out_ptrs, acc / total[:, None], mask=(offs_m < T)[:, None])


def window_with(fault, q, k, v, window):
    """Run the kernel with one fault and return its output."""
    T, D = q.shape
    out = torch.empty((T, D), dtype=q.dtype, device=q.device)
    strides = (q.stride(0), k.stride(0), v.stride(0))
    grid = (triton.cdiv(T, 16),)
    window_kernel[grid](
        q, k, v, out, T, window, D**-0.5, *strides, fault, D=D, BLOCK_M=16, BLOCK_N=16
    )
    return out


@wrong("window_attention", reason="wrong-values", cause="one key too many")
def sees_one_key_too_many(q, k, v, window):
    return window_with("one too many", q, k, v, window)


@wrong("window_attention", reason="wrong-values", cause="keys before the window count")
def masks_the_future_alone(q, k, v, window):
    return window_with("no lower bound", q, k, v, window)


@wrong("window_attention", reason="wrong-values", cause="keys ahead of the query count")
def masks_the_past_alone(q, k, v, window):
    return window_with("looks ahead", q, k, v, window)


@wrong("window_attention", reason="not-finite", cause="it is finite when `v` is")
def begins_with_the_first_key(q, k, v, window):
    return window_with("begins at 0", q, k, v, window)


@wrong("window_attention", reason="not-finite", cause="it is finite when `v` is")
def goes_on_to_the_last_key(q, k, v, window):
    return window_with("goes to the end", q, k, v, window)


@wrong(
    "window_attention",
    reason="out-of-bounds",
    cause="offsets of the load become negative",
)
def begins_before_the_first_key(q, k, v, window):
    return window_with("begins below 0", q, k, v, window)


@wrong(
    "window_attention",
    reason="wrong-values",
    cause="the loop begins one tile of 16 late",
)
def rounds_the_beginning_up(q, k, v, window):
    return window_with("begins a tile late", q, k, v, window)


@wrong("window_attention", reason="not-finite", cause="whole rows are NaN")
def starts_from_minus_infinity(q, k, v, window):
    return window_with("starts at -inf", q, k, v, window)


# Softcap: what is capped, when, and in which head


@triton.jit
def softcap_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, M, N, scale, cap,
    FAULT: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    key_head = 0 if FAULT == "head 0" else head
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    query_head = 0 if FAULT == "queries of head 0" else head
    q = load_rows(q_ptr + query_head * M * D, offs_m, M, D, D)
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr + key_head * N * D, offs_n, N, D, D)
        v = load_rows(v_ptr + key_head * N * D, offs_n, N, D, D)
        exists = (offs_n < N)[None, :]
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        if FAULT != "scales late":
            scores = scale * scores
        if FAULT == "masks first":
            scores = tl.where(exists, scores, -float("inf"))
        if FAULT == "clamps":
            scores = tl.minimum(tl.maximum(scores, -cap), cap)
        elif FAULT == "powers":
            powers = tl.exp(2 * scores / cap)
            scores = cap * ((powers - 1) / (powers + 1))
        elif FAULT == "no factor":
            scores = 2 * tl.sigmoid(2 * scores / cap) - 1
        elif FAULT == "tanh":
            scores = cap * tl.tanh(scores / cap)
        elif FAULT != "no cap":
            scores = cap * (2 * tl.sigmoid(2 * scores / cap) - 1)
        if FAULT == "scales late":
            scores = scale * scores
        if FAULT != "masks first":
            scores = tl.where(exists, scores, -float("inf"))
        top, total, acc = absorb(top, total, acc, scores, v)
    out_ptrs = out_ptr + head * M * D + offs_m[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out_ptrs, acc / total[:, None], mask=(offs_m < M)[:, None])


def softcap_with(fault, q, k, v, cap, grid=None):
    """Run the kernel with one fault and return its output."""
    (H, M, D), N = q.shape, k.shape[1]
    out = torch.empty_like(q)
    grid = grid or (triton.cdiv(M, 16), H)
    softcap_kernel[grid](
        q, k, v, out, M, N, D**-0.5, cap, fault, D=D, BLOCK_M=16, BLOCK_N=16
    )
    return out


@wrong("softcap_attention", reason="wrong-values", cause="not capped")
def caps_nothing(q, k, v, cap):
    return softcap_with("no cap", q, k, v, cap)


@wrong(
    "softcap_attention", reason="wrong-values", cause="capped before they are scaled"
)
def caps_before_it_scales(q, k, v, cap):
    return softcap_with("scales late", q, k, v, cap)


@wrong("softcap_attention", reason="wrong-values", cause="keys past the end count")
def lifts_minus_infinity_to_minus_the_cap(q, k, v, cap):
    return softcap_with("masks first", q, k, v, cap)


@wrong("softcap_attention", reason="wrong-values", cause="cut off at the cap")
def cuts_scores_off(q, k, v, cap):
    return softcap_with("clamps", q, k, v, cap)


@wrong(
    "softcap_attention",
    reason="not-finite",
    cause="it is finite when every input is within",
)
def divides_infinity_by_infinity(q, k, v, cap):
    return softcap_with("powers", q, k, v, cap)


@wrong("softcap_attention", reason="wrong-values", cause="capped at 1")
def caps_every_score_at_one(q, k, v, cap):
    return softcap_with("no factor", q, k, v, cap)


@wrong("softcap_attention", reason="compiler")
def asks_for_a_tanh_that_is_not_there(q, k, v, cap):
    return softcap_with("tanh", q, k, v, cap)


@wrong(
    "softcap_attention", reason="wrong-values", cause="`k` and `v` are read at index 0"
)
def reads_the_keys_of_head_0(q, k, v, cap):
    return softcap_with("head 0", q, k, v, cap)


@wrong(
    "softcap_attention",
    reason="not-written",
    cause="along axis 0 of the result, nothing is written",
)
def launches_one_head(q, k, v, cap):
    return softcap_with("", q, k, v, cap, grid=(triton.cdiv(q.shape[1], 16), 1))


@wrong("softcap_attention", reason="overwritten")
def torch_has_the_last_word(q, k, v, cap):
    return softcap_with("", q, k, v, cap).clamp_(max=1.0)


# Scales, and heads that are mixed up


@wrong("window_attention", reason="wrong-values", cause="multiplied by the root of D")
def multiplies_by_the_root(q, k, v, window):
    T, D = q.shape
    out = torch.empty((T, D), dtype=q.dtype, device=q.device)
    strides = (q.stride(0), k.stride(0), v.stride(0))
    right.window_attention_kernel[(triton.cdiv(T, 16),)](
        q, k, v, out, T, window, D**0.5, *strides, D=D, BLOCK_M=16, BLOCK_N=16
    )
    return out


@wrong("attention_lse", reason="wrong-values", cause="not divided by the root of D")
def forgets_the_scale_of_the_scores(q, k, v):
    (M, D), N = q.shape, k.shape[0]
    out = torch.empty((M, D), dtype=q.dtype, device=q.device)
    lse = torch.empty(M, dtype=torch.float32, device=q.device)
    strides = (q.stride(0), k.stride(0), v.stride(0))
    right.attention_lse_kernel[(triton.cdiv(M, 16),)](
        q, k, v, out, lse, M, N, 1.0, *strides, D=D, BLOCK_M=16, BLOCK_N=16
    )
    return out, lse


@wrong("softcap_attention", reason="wrong-values", cause="`q` is read at index 0")
def reads_the_queries_of_head_0(q, k, v, cap):
    return softcap_with("queries of head 0", q, k, v, cap)


@wrong("causal_attention", reason="wrong-values", cause="the wrong way round")
def inverts_the_comparison(q, k, v):
    return causal_with("looks only ahead", q, k, v)


@wrong("softcap_attention", reason="not-written", cause="or have axes changed places")
def swaps_the_axes_of_the_grid(q, k, v, cap):
    grid = (q.shape[0], triton.cdiv(q.shape[1], 16))
    return softcap_with("", q, k, v, cap, grid=grid)


# What only long loops, large scores and the edges of tiles show


@triton.jit
def causal_end_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, M, N, scale, stride_qm, stride_kn, stride_vn,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    q = load_rows(q_ptr, offs_m, M, stride_qm, D)
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, tl.minimum(N, first + BLOCK_M + N - M - 1), BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, offs_n, N, stride_kn, D)
        v = load_rows(v_ptr, offs_n, N, stride_vn, D)
        seen = offs_n[None, :] <= offs_m[:, None] + N - M
        scores = scale * tl.dot(q, tl.trans(k), input_precision="ieee")
        top, total, acc = absorb(
            top, total, acc, tl.where(seen, scores, -float("inf")), v
        )
    out = acc / tl.where(total > 0, total, 1.0)[:, None]
    out_ptrs = out_ptr + offs_m[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out_ptrs, out, mask=(offs_m < M)[:, None])


@wrong("causal_attention", reason="wrong-values")
def ends_one_key_early(q, k, v):
    (M, D), N = q.shape, k.shape[0]
    out = torch.empty((M, D), dtype=q.dtype, device=q.device)
    strides = (q.stride(0), k.stride(0), v.stride(0))
    causal_end_kernel[(triton.cdiv(M, 16),)](
        q, k, v, out, M, N, D**-0.5, *strides, D=D, BLOCK_M=16, BLOCK_N=16
    )
    return out


@triton.jit
def softcap_start_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, M, N, scale, cap, START: tl.constexpr,
    MOST: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    q = load_rows(q_ptr + head * M * D, offs_m, M, D, D)
    top = tl.full((BLOCK_M,), START, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, tl.minimum(N, MOST), BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr + head * N * D, offs_n, N, D, D)
        v = load_rows(v_ptr + head * N * D, offs_n, N, D, D)
        scores = scale * tl.dot(q, tl.trans(k), input_precision="ieee")
        scores = cap * (2 * tl.sigmoid(2 * scores / cap) - 1)
        scores = tl.where((offs_n < N)[None, :], scores, -float("inf"))
        top, total, acc = absorb(top, total, acc, scores, v)
    out_ptrs = out_ptr + head * M * D + offs_m[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out_ptrs, acc / total[:, None], mask=(offs_m < M)[:, None])


def softcap_from(q, k, v, cap, START=-1e30, MOST=1 << 20):
    """Run the kernel with a first maximum and with at most so many keys."""
    (H, M, D), N = q.shape, k.shape[1]
    out = torch.empty_like(q)
    softcap_start_kernel[(triton.cdiv(M, 16), H)](
        q, k, v, out, M, N, D**-0.5, cap, START, MOST, D=D, BLOCK_M=16, BLOCK_N=16
    )
    return out


@wrong("softcap_attention", reason="not-finite")
def begins_with_zero_for_a_maximum(q, k, v, cap):
    return softcap_from(q, k, v, cap, START=0.0)


@wrong("softcap_attention", reason="wrong-values")
def sees_64_keys(q, k, v, cap):
    return softcap_from(q, k, v, cap, MOST=64)


# Work that is done twice, or by something else than the kernel


@wrong("weighted_mean", reason="block")
def one_block_for_the_whole_row(x, v):
    M, N = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device)
    right.weighted_mean_kernel[(M,)](
        x, v, out, N, x.stride(0), BLOCK=triton.next_power_of_2(N)
    )
    return out


@triton.jit
def causal_two_passes_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, M, N, scale, stride_qm, stride_kn, stride_vn,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    q = load_rows(q_ptr, offs_m, M, stride_qm, D)
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    end = tl.minimum(N, first + BLOCK_M + N - M)
    for start in range(0, end, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, offs_n, N, stride_kn, D)
        seen = offs_n[None, :] <= offs_m[:, None] + N - M
        scores = scale * tl.dot(q, tl.trans(k), input_precision="ieee")
        top = tl.maximum(top, tl.max(tl.where(seen, scores, -float("inf")), 1))
    for start in range(0, end, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, offs_n, N, stride_kn, D)
        v = load_rows(v_ptr, offs_n, N, stride_vn, D)
        seen = offs_n[None, :] <= offs_m[:, None] + N - M
        scores = scale * tl.dot(q, tl.trans(k), input_precision="ieee")
        top, total, acc = absorb(
            top, total, acc, tl.where(seen, scores, -float("inf")), v
        )
    out = acc / tl.where(total > 0, total, 1.0)[:, None]
    out_ptrs = out_ptr + offs_m[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out_ptrs, out, mask=(offs_m < M)[:, None])


@wrong("causal_attention", reason="read-twice")
def goes_over_the_keys_twice(q, k, v):
    (M, D), N = q.shape, k.shape[0]
    out = torch.empty((M, D), dtype=q.dtype, device=q.device)
    strides = (q.stride(0), k.stride(0), v.stride(0))
    causal_two_passes_kernel[(triton.cdiv(M, 16),)](
        q, k, v, out, M, N, D**-0.5, *strides, D=D, BLOCK_M=16, BLOCK_N=16
    )
    return out


@wrong("attention_lse", reason="launches")
def launches_for_each_result(q, k, v):
    return right.attention_lse(q, k, v)[0], right.attention_lse(q, k, v)[1]


@triton.jit
def window_loads_queries_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, T, window, scale, stride_qm, stride_kn, stride_vn,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    begin = tl.maximum(0, first - window + 1) // BLOCK_N * BLOCK_N
    for start in range(begin, tl.minimum(T, first + BLOCK_M), BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        q = load_rows(q_ptr, offs_m, T, stride_qm, D)
        k = load_rows(k_ptr, offs_n, T, stride_kn, D)
        v = load_rows(v_ptr, offs_n, T, stride_vn, D)
        back = offs_m[:, None] - offs_n[None, :]
        scores = scale * tl.dot(q, tl.trans(k), input_precision="ieee")
        scores = tl.where((back >= 0) & (back < window), scores, -float("inf"))
        top, total, acc = absorb(top, total, acc, scores, v)
    out_ptrs = out_ptr + offs_m[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out_ptrs, acc / total[:, None], mask=(offs_m < T)[:, None])


@wrong("window_attention", reason="read-twice")
def loads_the_queries_in_every_step(q, k, v, window):
    T, D = q.shape
    out = torch.empty((T, D), dtype=q.dtype, device=q.device)
    strides = (q.stride(0), k.stride(0), v.stride(0))
    window_loads_queries_kernel[(triton.cdiv(T, 16),)](
        q, k, v, out, T, window, D**-0.5, *strides, D=D, BLOCK_M=16, BLOCK_N=16
    )
    return out


@wrong("softcap_attention", reason="launches")
def launches_head_by_head(q, k, v, cap):
    (H, M, D), N = q.shape, k.shape[1]
    out = torch.empty_like(q)
    for h in range(H):
        right.softcap_attention_kernel[(triton.cdiv(M, 16), 1)](
            q[h], k[h], v[h], out[h], M, N, D**-0.5, cap, D=D, BLOCK_M=16, BLOCK_N=16
        )
    return out


def dot(a, b):
    """Return the sum of the products of two sequences of numbers."""
    return sum(x * y for x, y in zip(a, b, strict=True))


@wrong("softcap_attention", reason="host")
def python_attends(q, k, v, cap):
    (H, M, D), lists = q.shape, [t.tolist() for t in (q, k, v)]
    rows = []
    for queries, keys, values in zip(*lists, strict=True):
        for query in queries:
            scores = [dot(query, key) / D**0.5 for key in keys]
            powers = [math.exp(cap * math.tanh(s / cap)) for s in scores]
            columns = zip(*values, strict=True)
            rows += [dot(powers, c) / sum(powers) for c in columns]
    return strided_copy(torch.tensor(rows, dtype=q.dtype).to(q.device)).view(H, M, D)
