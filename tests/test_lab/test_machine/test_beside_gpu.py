"""The machine beside a GPU: one kernel on the same inputs, compiled by both, must give the same results."""

import pytest
import torch
import triton

from kernels.attention import attention, attention_plain
from kernels.attention.backward import attention_backward_plain
from kernels.dropout import dropout
from kernels.gelu import bias_gelu, gelu
from kernels.ladders.dropout import dropout_four_kernel, dropout_one_kernel, dropout_stored_kernel
from kernels.matmul import matmul
from kernels.softmax import softmax
from kernels.vector_add import vector_add
from lab.device import DEVICE, ON_CPU
from lab.machine import backend
from tests.test_kernels import test_attention, test_gelu, test_matmul, test_softmax
from tests.test_lab.test_machine.operations import CASES, differences, launch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(ON_CPU, reason="needs a CUDA GPU"),
    pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated"),
]


@pytest.fixture(autouse=True, scope="module")
def scratch_memory():
    """Give kernels that make tensor descriptors the memory that they ask for."""
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=DEVICE))


@pytest.mark.parametrize("row", [row for row in CASES if not row.refused], ids=lambda row: row.name)
def test_operations(row):
    on_gpu = launch(row, DEVICE)
    with backend.active():
        on_machine = launch(row, DEVICE)
    found = {name: differences(on_machine[name], tensor, row.beside) for name, tensor in on_gpu.items()}
    assert not any(found.values()), found


# The course's kernels


def with_gradients(function, *tensors):
    """Return a result and the gradients of the tensors that want one, for a gradient of ones and twos."""
    tensors = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
    out = function(*tensors)
    out.backward(1 + torch.arange(out.numel(), device=out.device).view(out.shape).remainder(2).to(out.dtype))
    return out.detach(), *(t.grad for t in tensors if t.grad is not None)


def values(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def stored_mask():
    out, x = torch.empty(1000, device=DEVICE), values(1000)
    dropout_stored_kernel[(4,)](x, x > 0, out, 1000, 2.0, BLOCK=256)
    return (out,)


def drawn_mask(kernel, **constants):
    def run():
        out = torch.empty(3000, device=DEVICE)
        kernel[(-(-3000 // 1024),)](values(3000), out, 3000, 2**40 + 7, 0.3, 1.5, **constants)
        return (out,)

    return run


def form_of_gelu(form):
    return lambda: (test_gelu.rung(form, values(1000) * 4),)


def softmax_rung(kernel, programs, options, inputs):
    def run():
        out = torch.empty(5, 100, device=DEVICE)
        tensors = [values(5, 100, seed=seed) for seed in range(inputs)]
        kernel[(programs(5),)](*tensors, out, 5, 100, *[100] * (inputs + 1), **options)
        return (out,)

    return run


def matmul_rung(run_rung, dtype):
    def run():
        a, b, out = (
            values(40, 48, dtype=dtype),
            values(48, 72, dtype=dtype),
            torch.empty(40, 72, device=DEVICE, dtype=dtype),
        )
        run_rung(a, b, out, (40, 72, 48), (*a.stride(), *b.stride(), *out.stride()))
        return (out,)

    return run


def attention_rung(run_rung, causal):
    def run():
        q, k, v = (values(2, 2, rows, 16, dtype=torch.float16, seed=seed) for seed, rows in enumerate((40, 72, 72)))
        out = torch.empty_like(q)
        run_rung(q, k, v, out, causal)
        return (out,)

    return run


def heads(M, N, D, dtype):
    return [values(2, H, rows, D, dtype=dtype, seed=seed) for seed, (H, rows) in enumerate(((4, M), (2, N), (2, N)))]


def attention_and_gradients(causal, D, dtype):
    q, k, v = heads(50, 70, D, dtype)
    scale = D**-0.5
    out, lse = attention_plain(q, k, v, causal, scale)
    return out, lse, *attention_backward_plain(torch.ones_like(out), q, k, v, out, lse, causal, scale)


EXACT = {
    "vector_add": lambda: (vector_add(values(1003), values(1003, seed=1)), vector_add(values(3, 5).t(), values(5, 3))),
    "dropout": lambda: with_gradients(lambda x: dropout(x, 0.4, 2**60 + 1), values(5003)),
    "dropout, stored": stored_mask,
    "dropout, one number a call": drawn_mask(dropout_one_kernel, BLOCK=1024),
    "dropout, four numbers a call": drawn_mask(dropout_four_kernel, CALLS=256),
}
ROUNDED = {
    **{
        f"gelu, {form}, {dtype}": lambda form=form, dtype=dtype: with_gradients(
            lambda x: gelu(x, form), values(1000, dtype=dtype) * 3
        )
        for form in ("none", "tanh")
        for dtype in (torch.float32, torch.bfloat16)
    },
    "bias_gelu": lambda: with_gradients(bias_gelu, values(33, 100), values(100, seed=1)),
    **{f"gelu rung, {form.fn.__name__}": form_of_gelu(form) for form in test_gelu.EXACT + test_gelu.TANH},
    "softmax, short rows": lambda: with_gradients(softmax, values(70, 50) * 5),
    "softmax, pieces": lambda: with_gradients(softmax, values(3, 5000)),
    "softmax, long rows": lambda: with_gradients(softmax, values(2, 70_000)),
    **{f"softmax rung, {name}": softmax_rung(*rung, 1) for name, rung in test_softmax.LADDER.items()},
    **{f"softmax gradient rung, {name}": softmax_rung(*rung, 2) for name, rung in test_softmax.BACKWARD_LADDER.items()},
    "matmul, ieee": lambda: (matmul(values(70, 50), values(50, 90, seed=1), precision="ieee"),),
    "matmul, tf32": lambda: (matmul(values(70, 50), values(50, 90, seed=1), values(90), "gelu", "tf32"),),
    "matmul, bf16": lambda: (
        matmul(values(70, 64, dtype=torch.bfloat16), values(64, 80, dtype=torch.bfloat16), None, "relu"),
    ),
    "matmul, fp8": lambda: (
        matmul(values(70, 64).to(torch.float8_e4m3fn), values(80, 64).to(torch.float8_e4m3fn).t()),
    ),
    **{f"matmul rung, {name}": matmul_rung(rung, torch.float16) for name, rung in test_matmul.RUNGS.items()
       if name != "autotuned"},
    "attention, D = 64": lambda: (attention(*heads(50, 70, 64, torch.float16)),),
    "attention, few queries": lambda: (attention(*heads(3, 300, 64, torch.bfloat16)),),
    **{
        f"attention and gradients, D = {D}, {dtype}, {'causal' if causal else 'all'}":
            lambda causal=causal, D=D, dtype=dtype: attention_and_gradients(causal, D, dtype)
        for causal in (False, True) for D, dtype in ((32, torch.float32), (64, torch.bfloat16))
    },
    **{
        f"attention rung, {name}, {'causal' if causal else 'all'}": attention_rung(rung, causal)
        for name, rung in test_attention.RUNGS.items() for causal in (False, True)
    },
}  # fmt: skip
# Exponentials on a GPU are off by 2 units in the last place, tf32 and fp8 are added up with fewer bits; the results of
# 16 bits are rounded once more, and so are the weights of attention.
ERROR = {torch.float32: 2.0**-12, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}


@pytest.mark.parametrize("name", [*EXACT, *ROUNDED])
def test_kernels_of_the_course(name):
    run = EXACT.get(name) or ROUNDED[name]
    on_gpu = run()
    with backend.active():
        on_machine = run()
    for machine, gpu in zip(on_machine, on_gpu, strict=True):
        assert not (found := differences(machine.cpu(), gpu.cpu(), 0.0 if name in EXACT else ERROR[gpu.dtype])), found
