"""The compiler without a GPU: what it gives, what it refuses and in which words, and that its process is reliable."""

import json
import linecache
import os
import re
import signal
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lab import compiler  # before Triton
from lab.compiler import Compiled, CompileError, compiled, objections, pack_launch
from lab.device import ON_CPU
from lab.show import show

# isort: split
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

HALF = tl.constexpr(0.5)
PLAIN = 3
out_ptr = torch.zeros(2**20)  # a global that bears a parameter's name, as happens in notebooks


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)


@triton.jit
def matmul_kernel(a_ptr, b_ptr, out_ptr, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + offs[:, None] * K + offs_k[None, :])
        b = tl.load(b_ptr + offs_k[:, None] * BLOCK + offs[None, :])
        acc += tl.dot(a, b)
    tl.store(out_ptr + offs[:, None] * BLOCK + offs[None, :], acc)


@triton.jit
def half(x):
    return x * HALF


@triton.jit
def helped_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, half(libdevice.tanh(x)) + tl.max(x, 0), mask=offs < n)


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def vector_add(target: str = "sm_90", x: torch.Tensor | None = None, n: int = 2**20, **options) -> Compiled:
    x = meta(2**20) if x is None else x
    return compiled(add_kernel, x, meta(2**20), meta(2**20), n, target=target, BLOCK=1024, **options)


def matmul(target: str, block: int = 64, **options) -> Compiled:
    a = meta(block, 4096, dtype=torch.float16)
    return compiled(matmul_kernel, a, a, meta(block, block), 4096, BLOCK=block, BLOCK_K=64, target=target, **options)


# What comes back


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_aligned_loads_are_vectors(target):
    kernel = vector_add(target)
    assert kernel.count("ld.global.v4") == 4
    assert kernel.count("LDG.128") == 4
    assert 8 <= kernel.registers <= 64 and kernel.spills == 0 and kernel.shared == 0
    assert kernel.occupancy == 1.0
    for stage in (kernel.ttir, kernel.ttgir, kernel.llir, kernel.ptx, kernel.sass):
        assert "add_kernel" in stage


def test_amd_target():
    kernel = vector_add("gfx942")
    assert kernel.count("buffer_load_dwordx4") == 2
    assert kernel.asm == kernel.stage("amdgcn") and kernel.occupancy == 1.0
    with pytest.raises(ValueError, match="read .asm"):
        kernel.sass  # noqa: B018
    with pytest.raises(ValueError, match="choose from ttir"):
        kernel.ptx  # noqa: B018


@pytest.mark.parametrize(
    ("pointer_offset", "n", "vectors"),
    [(0, 2**20, 4), (1, 2**20, 2), (0, 2**20 + 1, 0), (0, 1, 0)],
    ids=["all aligned", "one pointer off by 4 bytes", "length not divisible by 16", "length 1 becomes a constant"],
)
def test_specialized_as_a_launch_would(pointer_offset, n, vectors):
    kernel = vector_add(x=torch.zeros(2**10)[pointer_offset:], n=n)
    assert kernel.count("ld.global.v4") == vectors
    assert ("%n: i32" in kernel.ttir) == (n != 1)


@pytest.mark.parametrize(
    ("n", "kind"), [(2**31 - 1, "i32"), (2**31, "i64"), (2**63, "i64"), (2.5, "f32"), (True, "i1")]
)
def test_scalars_take_their_width(n, kind):
    assert f"%n: {kind}" in vector_add(n=n).ttir


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [(torch.bfloat16, "bf16"), (torch.float8_e4m3fn, "f8E4M3FN"), (torch.int64, "i64"), (torch.float64, "f64")],
)
def test_dtypes(dtype, kind):
    assert f"%x_ptr: !tt.ptr<{kind}>" in vector_add(x=meta(64, dtype=dtype)).ttir


def test_matmul_uses_the_tensor_cores_of_its_target():
    ampere, hopper, blackwell = (matmul(target) for target in ("sm_80", "sm_90", "sm_100"))
    assert ampere.count("mma.sync") > 0 and ampere.count("HMMA") > 0 and ampere.count("cp.async") > 0
    assert hopper.count("wgmma.mma_async") > 0 and hopper.count("mma.sync") == 0 and hopper.count("HGMMA") > 0
    assert blackwell.count("tcgen05.mma") > 0
    assert hopper.shared > 0 and hopper.registers > ampere.count("none such")


@gluon.jit
def copy_block_kernel(x_desc, out_desc, BLOCK: gl.constexpr):
    block = gl.allocate_shared_memory(x_desc.dtype, [BLOCK, BLOCK], x_desc.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x_desc.block_type.nbytes)
    tma.async_copy_global_to_shared(x_desc, [0, 0], bar, block)
    mbarrier.wait(bar, 0)
    tma.async_copy_shared_to_global(out_desc, [0, 0], block)
    tma.store_wait(0)


def test_gluon_kernels_compile_too():
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    desc = GluonDescriptor.from_tensor(meta(256, 256, dtype=torch.float16), [64, 64], layout)
    code = compiled(copy_block_kernel, desc, desc, BLOCK=64)
    assert code.count("cp.async.bulk.tensor") == 2 and 64 * 64 * 2 <= code.shared < 64 * 64 * 2 + 64


@builtin
def forget(value, _semantic=None):
    return _semantic.full(value.shape, 0, value.dtype, value.type.layout)


@gluon.jit
def zero_kernel(out_ptr):
    offs = gl.arange(0, 128, layout=gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(out_ptr + offs, forget(offs))


def test_builtins_defined_beside_a_kernel_go_along():
    code = compiled(zero_kernel, meta(128, dtype=torch.int32))
    assert "dense<0>" in code.ttgir and code.count("st.global") > 0


def test_spills_and_warps():
    roomy, tight = matmul("sm_80"), matmul("sm_80", maxnreg=32)
    assert roomy.spills == 0 and tight.spills > 10 and tight.registers == 32
    assert matmul("sm_90", num_warps=8).num_warps == 8
    assert matmul("sm_90", num_stages=2).shared < matmul("sm_90", num_stages=4).shared


@pytest.mark.parametrize(
    ("target", "registers", "shared", "warps", "expected"),
    [
        ("sm_90", 32, 0, 4, 1.0),
        ("sm_90", 255, 0, 4, 8 / 64),
        ("sm_90", 128, 0, 4, 16 / 64),
        ("sm_90", 33, 0, 4, 48 / 64),  # 40 registers × 32 threads: 12 warps a scheduler
        ("sm_80", 32, 0, 1, 32 / 64),  # 32 programs at most
        ("sm_80", 32, 48 * 1024, 4, 12 / 64),
        ("sm_90", 168, 227 * 1024, 8, 8 / 64),
        ("sm_86", 32, 0, 4, 1.0),
        ("sm_75", 64, 0, 4, 1.0),
        ("gfx942", 128, 0, 4, 16 / 32),
    ],
)
def test_occupancy_by_the_tables(target, registers, shared, warps, expected):
    assert compiler.occupancy(target, registers, shared, warps) == expected


@pytest.mark.gpu
def test_equals_what_the_gpu_compiles_for_itself():
    if ON_CPU:
        pytest.skip("needs a CUDA GPU")
    x = torch.ones(4096, device="cuda")
    theirs = add_kernel[(4,)](x, x, x, 4096, BLOCK=1024)
    major, minor = torch.cuda.get_device_capability()
    ours = compiled(add_kernel, x, x, x, 4096, BLOCK=1024, target=f"sm_{major}{minor}")
    assert ours.ptx == theirs.asm["ptx"]
    assert (ours.registers, ours.spills, ours.shared) == (theirs.n_regs, theirs.n_spills, theirs.metadata.shared)


# Reading it


def test_view_is_short_and_about_what_was_asked():
    text = vector_add().view("ptx", about=("ld.global", "st.global"))
    assert text.count("ld.global.v4.b32") == 4 and text.count("st.global.v4.b32") == 2
    assert "{%r1…%r4}" in text and ".loc" not in text and "//" not in text
    assert all("global" in line for line in text.splitlines())


def test_view_shows_the_loop():
    lines = matmul("sm_80").view("ptx", about="mma.sync", lines=40).splitlines()
    assert any("more mma.sync" in line for line in lines)
    label = next(line for line in lines if line.endswith(":"))
    assert any("bra" in line and label[:-1] in line for line in lines)


@pytest.mark.parametrize("stage", ["ttir", "ttgir", "llir", "ptx", "sass", "asm"])
def test_view_keeps_to_its_lines(stage):
    text = vector_add().view(stage, lines=5)
    assert len(text.splitlines()) == 6 and "more lines" in text
    assert __file__ not in text and "#loc" not in text and "!dbg" not in text


def test_summary_in_words():
    assert repr(vector_add()).startswith("add_kernel for sm_90: ")
    assert repr(vector_add()).endswith("4 warps, occupancy 100%")


# Where kernels come from


def cell(source: str, name: str, file: str = "/tmp/ipykernel_1/123.py"):
    """Return what a notebook cell with that source defines under a name."""
    source = textwrap.dedent(source)
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    names = {"tl": tl, "triton": triton, "x": torch.zeros(3)}
    exec(compile(source, file, "exec"), names)
    return names[name]


def test_kernel_from_a_notebook_cell_and_its_second_version():
    source = """
        @triton.jit
        def cell_kernel(x_ptr, BLOCK: tl.constexpr):
            x = tl.arange(0, BLOCK)
            tl.store(x_ptr + x, {})
    """
    first = cell(source.format("x * 3"), "cell_kernel", "/tmp/ipykernel_1/1.py")
    assert compiled(first, meta(16), BLOCK=16).ttir.count("dense<3>") == 1
    second = cell(source.format("x.float()"), "cell_kernel", "/tmp/ipykernel_1/2.py")
    with pytest.raises(CompileError, match="a notebook cell line 5: tl.store") as refused:
        compiled(second, meta(16), BLOCK=16)
    assert refused.value.file == "/tmp/ipykernel_1/2.py"


def test_helpers_constants_and_libdevice():
    kernel = compiled(helped_kernel, meta(64), meta(64), 64, BLOCK=64)
    assert "5.000000e-01" in kernel.ttir and "__nv_tanhf" in kernel.ttir and "tt.reduce" in kernel.ttir


def test_closures_tuples_and_dtypes():
    scale = tl.constexpr(7)

    @triton.jit
    def closure_kernel(out_ptr, pair, DTYPE: tl.constexpr, FUNCTION: tl.constexpr):
        tl.store(out_ptr, (pair[0] * scale + FUNCTION(pair[1])).to(DTYPE))

    assert "tt.store" in compiled(closure_kernel, meta(1), (3, 5.5), DTYPE=tl.float32, FUNCTION=half).ttir


def test_recursive_helpers_do_not_hang():
    source = """
        @triton.jit
        def again(x):
            return again(x)
        @triton.jit
        def recursive_kernel(x_ptr):
            tl.store(x_ptr, again(tl.load(x_ptr)))
    """
    with pytest.raises(CompileError, match="recursi"):
        compiled(cell(source, "recursive_kernel"), meta(1))


def test_autotune_takes_the_first_configuration_and_heuristics_follow():
    configs = [triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 512}, num_warps=8)]
    heuristic = triton.heuristics({"EVEN": lambda values: values["n"] % values["BLOCK"] == 0})

    @triton.autotune(configs, key=["n"])
    @heuristic
    @triton.jit
    def tuned_kernel(out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        offs = tl.arange(0, BLOCK)
        tl.store(out_ptr + offs, offs, mask=None if EVEN else offs < n)

    kernel = compiled(tuned_kernel, meta(512), 512)
    assert kernel.num_warps == 2 and "tensor<256xi32>" in kernel.ttir and "slt" not in kernel.ttir
    assert "tensor<1024xi32>" in compiled(tuned_kernel, meta(512), 512, BLOCK=1024).ttir


def test_tensor_descriptor():
    @triton.jit
    def descriptor_kernel(source, out_ptr):
        offs = tl.arange(0, 64)
        tl.store(out_ptr + offs[:, None] * 64 + offs[None, :], source.load([0, 0]))

    descriptor = TensorDescriptor.from_tensor(torch.zeros(128, 128, dtype=torch.float16), [64, 64])
    assert compiled(descriptor_kernel, descriptor, meta(64, 64)).count("cp.async.bulk.tensor") > 0


def test_same_lines_as_the_file():
    line = int(next(part for part in vector_add().ptx.splitlines() if "test_compiler.py:" in part).split(":")[1])
    assert show(add_kernel).first < line <= show(add_kernel).first + 6


# What the compiler refuses, and the interpreter does not

REFUSED = {
    "plain global": ("tl.store(x_ptr, PLAIN)", "Cannot access global variable PLAIN", "PLAIN = tl.constexpr"),
    "plain function": ("tl.store(x_ptr, plain(n))", "Unsupported function", "Mark plain with @triton.jit"),
    "break": ("for i in range(n):\n    if i > 3:\n        break", "Break", "cannot be left early"),
    "continue": ("for i in range(n):\n    if i > 3:\n        continue", "Continue", "cannot be left early"),
    "if/else": ("if n > 3:\n    a = 1\nelse:\n    a = 2.0\ntl.store(x_ptr, a)", "Mismatched type for a", "one type"),
    "carried": ("a = 0\nfor i in range(n):\n    a = a + 0.5\ntl.store(x_ptr, a)", "Loop-carried variable a", "Start a"),
    "small K": ("a = tl.zeros((16, 8), tl.float16)\ntl.store(x_ptr, tl.max(tl.dot(a, a.T)))", "K >= 16", "pad"),
    "arange": ("tl.store(x_ptr + tl.arange(0, 3), 1)", "power of 2", "next_power_of_2"),
    "n == 1": ("tl.store(x_ptr, one.to(tl.int64))", "'int' object has no attribute 'to'", "plain number"),
    "exp bf16": ("tl.store(x_ptr, tl.exp(tl.load(x_ptr).to(tl.bfloat16)))", "got bf16", "Convert to float32"),
    "tanh bf16": ("tl.store(x_ptr, libdevice.tanh(tl.load(x_ptr).to(tl.bfloat16)))", "bfloat16", "no bfloat16"),
    "tl.tanh": ("tl.store(x_ptr, tl.tanh(tl.load(x_ptr)))", "no attribute 'tanh'", "lives in libdevice"),
    "undefined": ("tl.store(x_ptr, missing)", "missing is not defined", "before it is used"),
    "torch": ("tl.store(x_ptr, torch.exp(tl.load(x_ptr)))", "Unsupported function", "torch belongs in the host"),
}  # fmt: skip


def refused_kernel(body: str):
    """Return a kernel with that body, made as a notebook cell would."""
    head = "import torch\nfrom triton.language.extra import libdevice\nPLAIN = 3\ndef plain(x):\n    return x\n"
    kernel = "@triton.jit\ndef refused_kernel(x_ptr, n, one, BLOCK: tl.constexpr):\n" + textwrap.indent(body, "    ")
    return cell(head + kernel + "\n", "refused_kernel")


@pytest.mark.parametrize(("body", "words", "advice"), REFUSED.values(), ids=REFUSED)
def test_refusals_name_the_place_the_words_and_the_way_out(body, words, advice):
    with pytest.raises(CompileError) as refused:
        compiled(refused_kernel(body), meta(64), 5, 1, BLOCK=16)
    error = refused.value
    message = str(error).splitlines()
    assert message[0].startswith("sm_90 refuses refused_kernel, a notebook cell line ")
    assert error.code in body and error.line >= 8
    assert words in message[1] and advice in message[2] and len(message) == 3
    assert all(len(line) < 250 for line in message)


def test_refusal_inside_a_helper_points_into_the_helper():
    source = """
        PLAIN = 3
        @triton.jit
        def helper(x):
            return x + PLAIN
        @triton.jit
        def outer_kernel(x_ptr):
            tl.store(x_ptr, helper(1))
    """
    with pytest.raises(CompileError) as refused:
        compiled(cell(source, "outer_kernel"), meta(1))
    assert refused.value.line == 5 and refused.value.code == "return x + PLAIN"


def test_refusal_inside_the_library_points_at_the_call():
    with pytest.raises(CompileError, match="invalid axis 1") as refused:
        compiled(refused_kernel("tl.store(x_ptr, tl.sum(tl.arange(0, 16), axis=1))"), meta(1), 5, 1, BLOCK=16)
    assert "tl.sum" in refused.value.code


@triton.jit
def assembly_kernel(x_ptr, ASSEMBLY: tl.constexpr):
    x = tl.load(x_ptr)
    x = tl.inline_asm_elementwise(ASSEMBLY, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(x_ptr, x)


@pytest.mark.parametrize(
    "assembly, words",
    [
        ("nonsense.f32 $0, $1;", r"line \d+ of the PTX: Not a name of any known instruction: 'nonsense'"),
        ("aa $0, $1; cc $0, $1; ee $0, $1; gg $0, $1;", "'aa'; line .*'cc'; line .*'ee'; and 1 more error"),
    ],
)
def test_what_ptxas_refuses_is_told_in_its_own_words_without_paths(assembly, words):
    with pytest.raises(CompileError) as refused:
        compiled(assembly_kernel, meta(1), ASSEMBLY=assembly)
    kernel, told, advice = str(refused.value).splitlines()
    assert kernel == "sm_90 refuses assembly_kernel"
    assert re.match(f"ptxas: .*{words}$", told), told
    assert "tl.inline_asm_elementwise" in advice
    assert "/" not in told + refused.value.words and "returned non-zero" not in told


@pytest.mark.parametrize(
    "script, words",
    [
        ("#!/bin/sh\nexit 3\n", "ended with exit status 3"),
        (
            "#!/bin/sh\necho 'fatal: no such file: /tmp/some/x.cubin' >&2; exit 1\n",
            "status 1: fatal: no such file: x.cubin",
        ),
        ("#!/bin/sh\nkill -SEGV $$\n", "was killed by SIGSEGV"),
        ("", "cannot be run: Permission denied"),
    ],
)
def test_a_tool_that_fails_is_told_without_its_command_line(tmp_path, script, words):
    tool = tmp_path / "nvdisasm"
    tool.write_text(script)
    tool.chmod(0o755 if script else 0o644)
    with pytest.raises(CompileError, match=words) as failed:
        vector_add().run_tool(str(tool), "-c")
    assert str(failed.value).splitlines()[1].startswith("nvdisasm ") and "/" not in str(failed.value)


@pytest.mark.parametrize(
    "body, words",
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise ValueError('a', 'b')", "('a', 'b')"),
        ("raise type('Mute', (Exception,), dict.fromkeys(('__str__', '__repr__'), lambda error: 1 / 0))", "by zero"),
        ("return 10**400", "Nonrepresentable integer …\nIntegers in a kernel have at most 64 bits."),
        ("return 10**5000", "Exceeds the limit (4300 digits)"),
    ],
    ids=["exit", "two texts", "no text", "400 digits", "5,000 digits"],
)
def test_odd_things_that_happen_while_a_kernel_is_compiled_are_told(body, words):
    source = f"""
        @triton.constexpr_function
        def odd(n):
            {body}
        @triton.jit
        def odd_kernel(x_ptr):
            tl.store(x_ptr, odd(1))
    """
    with pytest.raises(CompileError) as refused:
        compiled(cell(source, "odd_kernel"), meta(1))
    assert words in str(refused.value) and len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "n, words",
    [(10**400, "at most 64 bits"), (10**5000, "cannot be passed on: Exceeds")],
    ids=["400 digits", "5,000 digits"],
)
def test_a_number_too_large_for_a_kernel_is_told(n, words):
    with pytest.raises(CompileError, match=words):
        compiled(add_kernel, meta(1), meta(1), meta(1), n, BLOCK=16)


def test_too_much_shared_memory_for_the_target():
    assert matmul("sm_90", 128, num_stages=5).shared > 99 * 1024
    with pytest.raises(CompileError, match=r"needs [\d,]+ bytes of shared memory.*\n.*num_stages"):
        matmul("sm_89", 128, num_stages=5)


def test_more_threads_than_a_program_may_have():
    assert "1 warp," in repr(vector_add(num_warps=1))
    with pytest.raises(CompileError, match="needs 2,048 threads, and one program may have 1,024\nUse fewer warps"):
        vector_add(num_warps=64)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: vector_add("sm_42"), ValueError, "choose from sm_75"),
        (lambda: compiled(len, 1), TypeError, "@triton.jit"),
        (lambda: compiled(add_kernel, meta(1)), TypeError, "missing a required argument: 'y_ptr'"),
        (lambda: vector_add(nonsense=3), CompileError, "nonsense"),
        (lambda: vector_add(n=object()), CompileError, "object"),
    ],
    ids=["target", "not a kernel", "argument missing", "unknown option", "argument of no type"],
)
def test_wrong_calls_say_what_to_pass(call, error, words):
    with pytest.raises(error, match=words):
        call()


# Objections to a traced launch


def launch_of(kernel, **arguments) -> SimpleNamespace:
    view = SimpleNamespace(name="x_ptr", shape=(64,), strides=(1,), dtype=torch.float32, itemsize=4, data_ptr=4096)
    return SimpleNamespace(function=kernel, tensors={"x_ptr": view}, arguments=arguments, options={"num_warps": 4})


def objections_to(launch) -> list[str]:
    """Return what the compiler says against a launch that was sent as text from another process."""
    return objections([json.loads(json.dumps(pack_launch(launch)))])


def test_no_objections_to_a_good_launch():
    assert objections_to(launch_of(refused_kernel("tl.store(x_ptr, n)"), n=5, one=1, BLOCK=16)) == []


def test_objections_say_it_once_for_both_targets():
    (text,) = objections_to(launch_of(refused_kernel("tl.store(x_ptr, PLAIN)"), n=5, one=1, BLOCK=16))
    assert text.startswith(
        "sm_80 and sm_90 would refuse refused_kernel, a notebook cell line 8: tl.store(x_ptr, PLAIN)"
    )


def test_objections_per_target():
    body = "tl.store(x_ptr, tl.load(x_ptr).to(tl.float8e4nv).to(tl.float32))"
    (text,) = objections_to(launch_of(refused_kernel(body), n=5, one=1, BLOCK=16))
    assert text.startswith("sm_80 would refuse") and "fp8e4nv" in text


class Odd:
    """Looks like a tensor from afar."""

    data_ptr = 16


odd = Odd()


@triton.jit
def odd_kernel(x_ptr, n, one, BLOCK: tl.constexpr):
    tl.store(x_ptr, odd)


def test_what_cannot_be_sent_is_an_objection():
    (text,) = objections_to(launch_of(odd_kernel, n=5, one=1, BLOCK=16))
    assert text.startswith("sm_80 and sm_90 would refuse odd_kernel\nit cannot be read (AttributeError: ")


# The process


def test_worker_imports_neither_torch_nor_the_lab():
    compiled(add_kernel, meta(1), meta(1), meta(1), 1, BLOCK=16)
    maps = Path(f"/proc/{compiler.worker.process.pid}/maps").read_text()
    assert "libtriton" in maps and "libtorch" not in maps


def test_a_killed_worker_is_started_again():
    vector_add()
    first = compiler.worker.process
    first.kill()
    first.wait()
    assert vector_add().registers > 0
    assert compiler.worker.process.pid != first.pid


def test_a_worker_killed_over_a_request_gets_it_again():
    vector_add()
    first = compiler.worker.process
    os.kill(first.pid, signal.SIGSTOP)
    threading.Timer(0.2, first.kill).start()
    assert vector_add().registers > 0
    assert compiler.worker.process.pid != first.pid


def test_a_compiler_that_dies_of_a_request_is_tried_twice_and_reported(monkeypatch):
    deadly = dict.fromkeys(("key", "name", "module", "decorator"), "f") | {"names": {}, "options": {}}
    deadly |= {"file": "f.py", "line": 1, "source": "import os\nos.write(2, b'LLVM ERROR: oh no')\nos._exit(3)"}
    with pytest.raises(EOFError, match="LLVM ERROR: oh no"):
        compiler.worker.ask({"functions": [deadly], "kernel": "f"}, timeout=20)
    assert vector_add().registers > 0

    def ask(request, timeout):
        raise EOFError("LLVM ERROR: oh no")

    monkeypatch.setattr(compiler.worker, "ask", ask)
    with pytest.raises(
        CompileError, match=r"the compiler itself crashed \(LLVM ERROR: oh no\): try another block size"
    ):
        vector_add()


def test_the_words_of_a_crash_name_no_folder(monkeypatch):
    def ask(request, timeout):
        raise EOFError("python: /root/.triton/llvm/lib/Layout.cpp:42: Assertion `rank' failed.")

    monkeypatch.setattr(compiler.worker, "ask", ask)
    with pytest.raises(CompileError, match=r"crashed \(python: Layout.cpp:42: Assertion `rank' failed.\)"):
        vector_add()


def test_works_where_the_disk_cache_cannot_be_written(monkeypatch):
    compiler.worker.stop()
    monkeypatch.setenv("TRITON_CACHE_DIR", "/proc/no/cache")
    assert vector_add().registers > 0
    compiler.worker.stop()


def test_start_does_not_wait(monkeypatch, tmp_path):
    compiler.worker.stop()
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(silent))
        compiler.start()
    assert compiler.worker.process.poll() is None, "start waited for a process that says nothing until it ends"
    compiler.worker.stop()
    assert vector_add().registers > 0


def test_a_compilation_that_takes_too_long_is_stopped(monkeypatch):
    vector_add()
    os.kill(compiler.worker.process.pid, signal.SIGSTOP)
    monkeypatch.setattr(compiler, "TIMEOUT", 0.1)
    with pytest.raises(CompileError, match="still compiling after 0 s: try smaller blocks"):
        vector_add()
    monkeypatch.undo()
    assert vector_add().registers > 0


def test_what_a_kernel_prints_does_not_disturb():
    body = "tl.static_print('hello')\nprint('n is', n)\ntl.store(x_ptr, n)"
    assert "tt.print" in compiled(refused_kernel(body), meta(1), 5, 1, BLOCK=16).ttir


def test_a_forked_child_has_a_worker_of_its_own():
    vector_add()
    pid, (reader, writer) = compiler.worker.process.pid, os.pipe()
    child = os.fork()
    if child == 0:
        other = vector_add("sm_80").count("ld.global.v4") == 4 and compiler.worker.process.pid != pid
        os.write(writer, b"1" if other else b"0")
        compiler.worker.stop()
        os._exit(0)
    assert vector_add("sm_90").target == "sm_90"
    assert os.read(reader, 1) == b"1"
    os.waitpid(child, 0)
    assert compiler.worker.process.pid == pid


class Endless:
    """Answers to every name, with itself."""

    def __getattr__(self, name):
        return self


@pytest.mark.parametrize(
    "target",
    [["sm_90"], {}, None, 90, 10**5000, "sm_99", "", Compiled, torch.ones(2)],
    ids=lambda value: type(value).__name__,
)
def test_an_unknown_target_ends_in_a_sentence(target):
    with pytest.raises(ValueError, match="^unknown target .*: choose from sm_75, .*gfx942$"):
        compiled(None, target=target)
    with pytest.raises(ValueError, match="^unknown target .*: choose from sm_75, .*gfx942$"):
        compiler.occupancy(target, 32, 0, 4)


@pytest.mark.parametrize(
    "kernel", [None, [1], 10**5000, Compiled, len, torch.ones(2), Endless()], ids=lambda value: type(value).__name__
)
def test_what_is_no_kernel_ends_in_a_sentence(kernel):
    with pytest.raises(TypeError, match="is not a kernel: pass a function decorated with @triton.jit$"):
        compiled(kernel, 1)


@pytest.mark.parametrize("odd", [[1], 7.5, 10**5000, len, b"ld", torch.ones(2)], ids=lambda value: type(value).__name__)
def test_odd_questions_to_a_compiled_kernel_end_in_a_sentence(odd):
    code = vector_add()
    with pytest.raises(TypeError, match="count takes the name of an instruction, such as 'LDG.E', not "):
        code.count(odd)
    with pytest.raises(TypeError, match="about is .*; it must be a word, a list of words or None"):
        code.view("ptx", about=odd)
    with pytest.raises(TypeError, match="lines is .*; it must be a whole number"):
        code.view("ptx", lines=None if isinstance(odd, int) else odd)


@pytest.mark.parametrize("odd", [[1], 7.5, "4", len, {1}, torch.ones(2)], ids=lambda value: type(value).__name__)
def test_odd_options_of_a_launch_end_in_a_sentence(odd):
    for name in ("num_warps", "num_stages"):
        with pytest.raises(TypeError, match=f"^{name} is .*; it must be a whole number$"):
            vector_add(**{name: odd})
    with pytest.raises(CompileError, match="^sm_90 refuses add_kernel"):
        vector_add(num_ctas=odd)
