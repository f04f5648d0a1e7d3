"""Calls of every operation: what PyTorch's own operations may be used for, on streams, in graphs, threads and loops."""

import threading
from collections.abc import Callable

import pytest
import torch
from torch.autograd import forward_ad

from kernels.attention import attention
from kernels.dropout import Dropout, dropout
from kernels.gelu import BiasGelu, Gelu, bias_gelu, gelu
from kernels.matmul import matmul
from kernels.softmax import Softmax, softmax
from kernels.vector_add import VectorAdd, vector_add
from lab.device import DEVICE, ON_CPU

needs_gpu = pytest.mark.skipif(ON_CPU, reason="needs a CUDA GPU")
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")


def values(*shape: int, seed: int = 0, device: torch.device = DEVICE) -> torch.Tensor:
    """Return normal random values, the same on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def heads(*shape: int, seed: int = 0, device: torch.device = DEVICE) -> torch.Tensor:
    return values(*shape, seed=seed, device=device).half()


# name → the operation, and its tensors by seed and device
OPERATIONS: dict[str, tuple[Callable, Callable]] = {
    "vector_add": (vector_add, lambda s, d: (values(4096, seed=s, device=d), values(4096, seed=s + 1, device=d))),
    "dropout": (lambda x: dropout(x, 0.3, 2**40 + 1), lambda s, d: (values(4096, seed=s, device=d),)),
    "softmax": (softmax, lambda s, d: (values(8, 512, seed=s, device=d),)),
    "softmax, long rows": (softmax, lambda s, d: (values(2, 30_000, seed=s, device=d),)),
    "softmax, along columns": (lambda x: softmax(x, 0), lambda s, d: (values(60, 70, seed=s, device=d),)),
    "gelu": (gelu, lambda s, d: (values(4096, seed=s, device=d),)),
    "gelu, tanh": (lambda x: gelu(x, "tanh"), lambda s, d: (values(30, 40, seed=s, device=d).t(),)),
    "bias_gelu": (bias_gelu, lambda s, d: (values(8, 512, seed=s, device=d), values(512, seed=s + 1, device=d))),
    "matmul": (matmul, lambda s, d: (values(100, 60, seed=s, device=d), values(60, 90, seed=s + 1, device=d))),
    "matmul, large": (matmul, lambda s, d: (heads(512, 512, seed=s, device=d), heads(512, 512, seed=s + 1, device=d))),
    "attention": (attention, lambda s, d: [heads(2, 4, 200, 64, seed=s + i, device=d) for i in range(3)]),
}
LARGEST = "matmul, large"
each_operation = pytest.mark.parametrize("name", [name for name in OPERATIONS if not (ON_CPU and name == LARGEST)])


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether two results are the same bytes, and none of them NaN."""
    return torch.equal(found, expected)


@pytest.mark.gpu
@needs_gpu
@each_operation
def test_in_a_graph(name):
    """Captured once, then replayed on other values."""
    operation, make = OPERATIONS[name]
    inputs, others = make(0, DEVICE), make(7, DEVICE)
    expected = [operation(*tensors).clone() for tensors in (inputs, others)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = operation(*inputs)
    for tensors, right in ((others, expected[1]), (make(0, DEVICE), expected[0])):
        for t, value in zip(inputs, tensors, strict=True):
            t.copy_(value)
        out.fill_(float("nan"))
        graph.replay()
        assert same(out, right)


@pytest.mark.gpu
@needs_gpu
@each_operation
def test_on_a_side_stream(name):
    """The kernel waits for what its stream waits for: inputs that are written late are read late."""
    operation, make = OPERATIONS[name]
    inputs, late = make(0, DEVICE), make(7, DEVICE)
    expected = operation(*late).clone()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # some 10 ms
        for t, value in zip(inputs, late, strict=True):
            t.copy_(value)
        out = operation(*inputs)
    stream.synchronize()
    assert same(out, expected)


@each_operation
def test_in_threads(name):
    """Four threads on a GPU, each with inputs of its own; one on the CPU, where the machine takes one at a time."""
    operation, make = OPERATIONS[name]
    inputs = [make(seed, DEVICE) for seed in range(4)]
    found: list = [None] * 4

    def work(i: int) -> None:
        found[i] = [operation(*inputs[i]) for _ in range(2 if ON_CPU else 20)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1 if ON_CPU else 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(len(threads)):
        expected = operation(*inputs[i])
        assert all(same(out, expected) for out in found[i])


@pytest.mark.gpu
@needs_two
@each_operation
def test_on_another_device_than_the_current_one(name):
    operation, make = OPERATIONS[name]
    expected = operation(*make(0, torch.device("cuda", 0)))
    for current, other in ((0, 1), (1, 0), (0, 1)):
        with torch.cuda.device(current):
            out = operation(*make(0, torch.device("cuda", other)))
            assert torch.cuda.current_device() == current
        assert out.device.index == other and same(out.cpu(), expected.cpu())


@each_operation
def test_new_tensors_in_old_places(name):
    """What is kept between calls is kept by shape, strides, dtype and alignment, not by the tensors."""
    operation, make = OPERATIONS[name]
    for seed in (0, 7, 0):
        inputs = make(seed, DEVICE)
        expected = operation(*(t.clone() for t in inputs))
        assert same(operation(*inputs), expected)
        moved = [unaligned(t) for t in inputs]
        # Another kernel may compute them: what lies one element beside would be off by far more.
        assert torch.allclose(operation(*moved), expected, rtol=5e-3, atol=5e-3)


def unaligned(t: torch.Tensor) -> torch.Tensor:
    """Return a copy that starts one element past a multiple of 16 bytes, with the strides of t."""
    memory = torch.empty(t.untyped_storage().nbytes() // t.element_size() + 1, dtype=t.dtype, device=t.device)
    return memory.as_strided(t.shape, t.stride(), 1).copy_(t)


# Gradients: autograd is left out of calls that need none, and never of others

WITH_GRADIENT = {
    "vector_add": (VectorAdd, lambda x: vector_add(x, x)),
    "dropout": (Dropout, lambda x: dropout(x, 0.5, 3)),
    "softmax": (Softmax, softmax),
    "gelu": (Gelu, gelu),
    "bias_gelu": (BiasGelu, lambda x: bias_gelu(x, x[0].detach())),
}


@pytest.mark.parametrize("name", WITH_GRADIENT)
def test_gradients_are_recorded_where_wanted(name):
    operation = WITH_GRADIENT[name][1]
    x = values(3, 50).requires_grad_()
    assert operation(x).requires_grad
    assert operation(2 * x).requires_grad  # which is no leaf
    assert not operation(x.detach()).requires_grad
    for without in (torch.no_grad, torch.inference_mode):
        with without():
            assert not operation(x).requires_grad
    bias = values(50).requires_grad_()
    assert bias_gelu(x.detach(), bias).requires_grad


@pytest.mark.parametrize("name", WITH_GRADIENT)
def test_a_call_without_a_gradient_does_not_pass_through_autograd(name, monkeypatch):
    function, operation = WITH_GRADIENT[name]

    def refuse(*arguments):
        raise AssertionError("an autograd.Function was called")

    monkeypatch.setattr(function, "apply", refuse)
    operation(values(3, 50))
    with torch.no_grad():
        operation(values(3, 50).requires_grad_())
    with pytest.raises(AssertionError, match="was called"):
        operation(values(3, 50).requires_grad_())


@pytest.mark.parametrize("name", WITH_GRADIENT)
def test_a_tangent_is_refused_and_not_lost(name):
    """Forward-mode gradients have no formula here: as before, PyTorch says so."""
    operation = WITH_GRADIENT[name][1]
    with forward_ad.dual_level(), pytest.raises((RuntimeError, NotImplementedError), match="(?i)forward|jvp"):
        operation(forward_ad.make_dual(values(3, 50), values(3, 50, seed=1)))


TRANSFORMS = {
    "grad": lambda f, x: torch.func.grad(lambda x: f(x).sum())(x),
    "vmap": lambda f, x: torch.func.vmap(f)(torch.stack([x, x])),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,)),
    "hessian": lambda f, x: torch.func.hessian(lambda x: f(x).sum())(x),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@each_operation
def test_the_transforms_of_torch_func_are_refused_in_words(name, transform):
    """Inside of them a tensor may have no memory of its own."""
    operation, make = OPERATIONS[name]
    first, *rest = make(0, DEVICE)
    with pytest.raises(RuntimeError, match="cannot see into these kernels"):
        TRANSFORMS[transform](lambda x: operation(x, *rest), first)


def test_gradients_of_a_sum_are_those_of_torch():
    x, y = values(3, 50).requires_grad_(), values(3, 50, seed=1).requires_grad_()
    weights = values(3, 50, seed=2).requires_grad_()
    (gx,) = torch.autograd.grad((vector_add(x, y) * weights).sum(), x, create_graph=True)
    assert torch.equal(gx, weights)
    gx.square().sum().backward()  # a second derivative
    assert torch.equal(weights.grad, 2 * weights)
    vector_add(x, y.detach()).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x)) and y.grad is None
    z = torch.complex(values(7), values(7, seed=1)).requires_grad_()
    vector_add(z, z.conj()).abs().sum().backward()
    expected = torch.autograd.grad((z + z.conj()).abs().sum(), z)[0]
    assert torch.equal(z.grad, expected)


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_a_product_has_no_gradient_and_says_so_to_whoever_goes_back(how):
    a, b = values(20, 30).requires_grad_(), values(30, 20, seed=1)
    product = matmul if how == "eager" else torch.compile(matmul, backend="aot_eager")
    out = product(a, b)
    assert out.requires_grad and same(out.detach(), matmul(a.detach(), b))
    with pytest.raises(RuntimeError, match="matmul has no gradient: use PyTorch's own"):
        out.sum().backward()
    with torch.no_grad():
        assert not product(a, b).requires_grad


def test_a_parameter_is_a_tensor():
    weight = torch.nn.Parameter(values(3, 50))
    for _, operation in WITH_GRADIENT.values():
        out = operation(weight)
        assert type(out) is torch.Tensor and out.requires_grad
    with torch.no_grad():
        assert type(vector_add(weight, weight)) is torch.Tensor
