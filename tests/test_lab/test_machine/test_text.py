"""Text of kernels from anybody: whatever is wrong with it ends in an error of the machine's own, and soon."""

import builtins
import re
import time

import numpy as np
import pytest
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.machine import backend
from lab.machine.execute import Kernel, Run
from lab.machine.faults import KernelError, Unsupported
from lab.machine.memory import TensorView
from lab.machine.text import TextError

ENDS = (TextError, Unsupported, KernelError)
SECONDS = 3.0  # of the CPU, on a busy machine; an idle one needs a third


def launch(text, grid=(2, 1, 1), seconds=0.5):
    """Run a kernel's text on memory of its own; return what its pointers led to."""
    kernel = Kernel(text)
    arguments, views, memories = [], {}, []
    for number, parameter in enumerate(kernel.plan.parameters):
        if parameter.type.pointee is not None:
            memory = np.ones(4096, np.uint8).view(np.int32)
            memories.append(memory)
            views[number] = TensorView(f"p{number}", (1024,), (1,), memory.dtype, 4, memory.ctypes.data)
            arguments.append(memory.ctypes.data)
        else:
            arguments.append(5)
    kernel.run(Run(grid, views, deadline=time.monotonic() + seconds), arguments)
    return memories


def end_of(text, **options):
    """Return the error that a text ends in, None if it runs; any other error passes, and so does a late end."""
    before, error = time.thread_time(), None
    try:
        launch(text, **options)
    except ENDS as refusal:
        error = refusal
    assert time.thread_time() - before < SECONDS
    return error


def kernel_text(body, parameters="%x: !tt.ptr<i32>, %n: i32", more=""):
    """Return a module whose kernel has these lines."""
    return f"module {{\n  tt.func public @kernel({parameters}) {{\n{body}\n    tt.return\n  }}\n{more}\n}}\n"


# Texts of every kind, from Triton's compiler


@triton.jit
def sign_or(x, y):
    if x > 3:
        return x + y
    if y > 3:
        return x - y
    return x * y


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def mixed(x_ptr, out_ptr, n, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    mask = offs < n
    acc = tl.zeros([N], tl.float32)
    for i in range(0, n, 3):
        acc += tl.load(x_ptr + offs, mask=mask, other=0.0) * i
    j = 0
    while j < n:
        j += 2
    if n > 4:
        acc = acc * 2 + 0.5
    acc = tl.cumsum(acc, 0) + tl.max(acc, 0) + tl.reduce(acc, 0, larger) + sign_or(n, j)
    tl.device_print('a (b) %c "q" loc(#loc1)', j)
    tl.atomic_add(out_ptr + offs, acc, mask=mask)
    a = tl.reshape(acc, [N // 2, 2])
    b = tl.sum(tl.trans(a), 0)
    even, odd = tl.split(a)
    tl.store(out_ptr + tl.arange(0, N // 2), b + tl.join(even, odd).reshape(2, N // 2).sum(0) + tl.exp(even))


@triton.jit
def tiles(x_ptr, out_ptr, n, M: tl.constexpr):
    rows = tl.arange(0, M)
    at = rows[:, None] * M + rows[None, :]
    a = tl.load(x_ptr + at).to(tl.float16)
    source = tl.make_tensor_descriptor(x_ptr, [M, M], [M, 1], [M, M])
    c = tl.dot(a, a) + source.load([0, n * 0])
    tl.store(out_ptr + at, tl.where(at < n, c, tl.gather(c, at % M, 0)))
    tl.store(out_ptr + rows, tl.histogram(rows, M).to(tl.float32))


@pytest.fixture(scope="module")
def texts():
    """The texts of the two kernels above, which run as they are."""
    with backend.active():
        pointers = {"x_ptr": triton.MockTensor(tl.float32), "out_ptr": triton.MockTensor(tl.float32)}
        compiled = [
            mixed.warmup(**pointers, n=5, N=8, grid=(1,)),
            tiles.warmup(**pointers, n=5, M=16, grid=(1,)),
        ]
    return [each.asm["ttir"] for each in compiled]


def test_the_texts_run_as_they_are(texts, capsys):
    for text in texts:
        launch(text)
    assert 'pid (1, 0, 0) a (b) %c "q" loc(#loc1): 6\n' in capsys.readouterr().out


# Damaged texts


def test_a_text_cut_off_anywhere(texts):
    for text in texts:
        for end in range(0, len(text), 101):
            assert isinstance(end_of(text[:end]), TextError) or end > text.rindex("}")


def test_a_text_without_one_of_its_lines(texts):
    for text in texts:
        lines = text.splitlines()
        for number in range(0, len(lines), 3):
            end_of("\n".join(lines[:number] + lines[number + 1 :]))


WORDS = [
    "", "%x", "%0", "i1", "i32", "i64", "f32", "bf16", "tensor<8xf32>", "tensor<1048576x1xi32>", "!tt.ptr<f32>",
    "tensor<8x!tt.ptr<i64>>", "!tt.tensordesc<tensor<8x8xf32>>", "-1", "0", "99999999999999999999", "dense<[]>", "nan",
    "0x", "0xFFFFFFFFFF", '"', "\\", "(", ")", "{", "}", "<", ">", "loc(#loc1)", "loc(", "#loc", "$0", "$99", "^bb0",
    "^bb9", ":", ",", "->", "=", "tt.load", "tt.return", "scf.yield", "scf.for", "cf.br", "tt.reduce", "@kernel",
    "axis", "\n", "\x00", "\u2028", "é", "١", "tt.dot", "arith.constant", "true", "index", "f8E4M3FN", "ui32", "none",
]  # fmt: skip


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_text_with_other_words(texts, data):
    text = data.draw(st.sampled_from(texts))
    for _ in range(data.draw(st.integers(1, 3))):
        tokens = TOKEN.findall(text)
        at = data.draw(st.integers(0, len(tokens) - 1))
        new = data.draw(st.sampled_from(WORDS) | st.sampled_from(tokens) | st.text(max_size=4))
        tokens[at : at + data.draw(st.integers(0, 2))] = [new]
        text = "".join(tokens)
    end_of(text)


TOKEN = re.compile(r"\w+|\s+|.")

# Hostile texts

RANGE = "    %r = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>\n"
ONE = "    %c1 = arith.constant 1 : i32\n"
TO_SHAPE = "    %a = tt.splat %n : i32 -> tensor<{}xi32>\n"


def nested(depth, first="scf.if %c {", last="}"):
    return kernel_text("    %c = arith.constant true\n" + f"    {first}\n" * depth + f"    {last}\n" * depth)


def nested_loops(depth):
    """Return a kernel of loops in loops, each of which carries a value that is known as it begins, and then not."""
    lines = [ONE]
    for i in range(depth):
        lines.append(f"    %v{i} = scf.for %i{i} = %c1 to %c1 step %c1 iter_args(%a{i} = %c1) -> (i32)  : i32 {{\n")
    value = "%n"
    for i in reversed(range(depth)):
        lines.append(f"    %s{i} = arith.addi {value}, %a{i} : i32\n    scf.yield %s{i} : i32\n    }}\n")
        value = f"%v{i}"
    return kernel_text("".join(lines))


def doubling_calls(depth):
    functions = [
        f"  tt.func private @f{i}() {{\n    tt.call @f{i + 1}() : () -> ()\n    tt.call @f{i + 1}() : () -> ()\n"
        "    tt.return\n  }\n"
        for i in range(depth)
    ]
    functions.append(f"  tt.func private @f{depth}() {{\n    tt.return\n  }}\n")
    return kernel_text("    tt.call @f0() : () -> ()", more="".join(functions))


def turning(count):
    """Return a kernel of blocks that hand many values round in a circle."""
    names = [f"%v{i}" for i in range(count)]
    types = ", ".join(["i32"] * count)
    arguments = ", ".join(f"{name}: i32" for name in names)
    turned = ", ".join(names[1:] + names[:1])
    start = ", ".join(["%n"] * (count - 1) + ["%c1"])
    return kernel_text(
        f"{ONE}    %c = arith.cmpi sgt, %n, %n : i32\n    cf.br ^bb1({start} : {types})\n  ^bb1({arguments}):\n"
        f"    cf.cond_br %c, ^bb1({turned} : {types}), ^bb2\n  ^bb2:"
    )


def long(part):
    """Return a text of one part again and again, almost as long as a line may be."""
    return part * (19_900 // len(part))


REDUCE = """    %s = "tt.reduce"(%a) <{{axis = {} : i32}}> ({{
    ^bb0(%p: i32, %q: i32):
      %t = {}
      tt.reduce.return %t : i32
    }}) : (tensor<{}xi32>) -> i32"""
HOSTILE = {
    "nothing": "",
    "no module": "hello",
    "no function": "module {\n}\n",
    "bytes that are no text": bytes(range(256)).decode("latin-1"),
    "surrogates": kernel_text("    %a = arith.constant \udcff : i32"),
    "zeros": "\0" * 1000,
    "a million lines": "\n" * 10**6,
    "a million operations": kernel_text("    ttg.barrier local\n" * 10**6),
    "a hundred thousand operations": kernel_text("    %a = arith.constant 1 : i32\n" * 100_001),
    "one long line": kernel_text("    %a = arith.constant " + "1" * 10**6 + " : i32"),
    "long line of parentheses": kernel_text("    tt.print " + long("(")),
    "long line of places": kernel_text("    tt.return" + long(" loc(")),
    "long line of closed places": kernel_text("    tt.return" + long(" loc(a)")),
    "long line of braces": kernel_text("    %a = arith.constant {" + long("{")),
    "long line of equals": kernel_text("    %a = " + long("%a = ") + "arith.constant 1 : i32"),
    "long line of attributes": kernel_text("    tt.print " + long("a = <a = ")),
    "long line of words": kernel_text("    %a = arith." + long("a.") + "!"),
    "long line of quotes": kernel_text("    tt.print " + long('"')),
    "long line of escapes": kernel_text('    tt.print "' + long("\\")),
    "long line of arrows": kernel_text("    %a = tt.splat %n : " + long(" -> ")),
    "long line of targets": kernel_text("    cf.br " + long("^a(")),
    "long line of numbers": kernel_text("    %a = tt.trans %n {order = array<i32: " + long("1, ")),
    "long type": kernel_text("    %a = arith.constant 1 : tensor<" + long("1x") + "i32>"),
    "deep type": kernel_text("    %a = arith.constant 1 : " + "!tt.ptr<" * 2000 + "i32" + ">" * 2000),
    "long parameters": kernel_text("", parameters=", ".join(f"%a{i}: i32" for i in range(1900))),
    "long parameter": kernel_text("", parameters="%a: i32 {" + long("{ ")),
    "long function": "module {\n  tt.func public @f(" + long("(") + "\n",
    "places in a circle": kernel_text("    %a = tt.what loc(#loc1)", more="#loc1 = loc(#loc2)\n#loc2 = loc(#loc1)"),
    "places that double": kernel_text(
        "    %a = tt.what loc(#loc1)",
        more="".join(f"#loc{i} = loc(callsite(#loc{i + 1} at #loc{i + 1}))\n" for i in range(1, 60)),
    ),
    "a huge block": kernel_text(TO_SHAPE.format("1048577")),
    "a huge block of many axes": kernel_text(TO_SHAPE.format("1024x1024x1024x1024")),
    "a block of huge numbers": kernel_text(TO_SHAPE.format("9" * 5000)),
    "an empty block": kernel_text(TO_SHAPE.format("0")),
    "an outer product": kernel_text(
        "    %a = tt.splat %n : i32 -> tensor<1048576x1xi32>\n    %b = tt.splat %n : i32 -> tensor<1x1048576xi32>\n"
        "    %c = arith.addi %a, %b : tensor<1048576x1xi32>"
    ),
    "a product too large": kernel_text(
        "    %a = arith.constant dense<1.0> : tensor<1048576x1xf32>\n"
        "    %b = arith.constant dense<1.0> : tensor<1x1048576xf32>\n"
        "    %c = tt.dot %a, %b, %a, inputPrecision = tf32 : tensor<1048576x1xf32> * tensor<1x1048576xf32> -> "
        "tensor<1048576x1xf32>"
    ),
    "a huge constant": kernel_text("    %a = arith.constant 1" + "0" * 4000 + " : i32"),
    "a constant of too many digits": kernel_text("    %a = arith.constant " + "9" * 5000 + " : i64"),
    "a constant that is a name": kernel_text("    %a = arith.constant __import__ : i32"),
    "a constant that is a call": kernel_text("    %a = arith.constant __import__('os').system('exit') : i32"),
    "a constant of letters": kernel_text("    %a = arith.constant inf : i32"),
    "a constant of the wrong size": kernel_text("    %a = arith.constant dense<[1, 2, 3]> : tensor<4xi32>"),
    "a constant of odd bytes": kernel_text('    %a = arith.constant dense<"0x123"> : tensor<4xi32>'),
    "a constant without a type": kernel_text("    %a = arith.constant 1"),
    "a constant of no number": kernel_text("    %a = arith.constant 1 : !tt.ptr<i32>"),
    "a constant descriptor": kernel_text("    %a = arith.constant 1 : !tt.tensordesc<tensor<8xi32>>"),
    "an unknown operation": kernel_text("    %a = tt.what %n : i32"),
    "an operation that is a method": kernel_text("    %a = arith.__class__ %n : i32"),
    "an operation that is a method of the plan": kernel_text("    %a = tt.sections %n : i32"),
    "an operation with no name": kernel_text("    %a = %n : i32"),
    "inline assembly": kernel_text('    %a = tt.elementwise_inline_asm "exit;" {x = 1 : i32} %n : i32 -> i32'),
    "a library": kernel_text(
        '    %a = tt.extern_elementwise %n {libname = "os", libpath = "/bin/sh", pure = true, symbol = "system"} : '
        "(i32) -> i32"
    ),
    "a symbol of a pattern": kernel_text(
        '    %a = tt.extern_elementwise %n {libname = "", libpath = "", pure = true, symbol = "__nv_.*"} : (i32) -> i32'
    ),
    "an undefined name": kernel_text("    %a = arith.addi %n, %b : i32"),
    "a name used before": kernel_text(f"    %a = arith.addi %n, %c1 : i32\n{ONE}"),
    "a name of a sister": kernel_text(
        f"{ONE}    %c = arith.cmpi sgt, %n, %c1 : i32\n    scf.if %c {{\n    %b = arith.addi %n, %n : i32\n    }}\n"
        "    %d = arith.addi %b, %n : i32"
    ),
    "a name of a block that is skipped": kernel_text(
        f"{ONE}    %c = arith.cmpi sgt, %n, %n : i32\n    cf.cond_br %c, ^bb1, ^bb2\n  ^bb1:\n"
        "    %b = arith.addi %n, %n : i32\n    cf.br ^bb2\n  ^bb2:\n    %d = arith.addi %b, %n : i32"
    ),
    "too few operands": kernel_text("    %a = arith.addi %n : i32"),
    "too many operands": kernel_text("    %a = arith.addi %n, %n, %n : i32"),
    "no operands": kernel_text("    tt.store : !tt.ptr<i32>"),
    "too few results": kernel_text("    %a:3 = arith.addi %n, %n : i32"),
    "too many results": kernel_text("    %a:999999999 = arith.addi %n, %n : i32"),
    "results without end": kernel_text("    %a:" + "9" * 5000 + " = arith.addi %n, %n : i32"),
    "other shapes": kernel_text(RANGE + "    %a = arith.addi %r, %n : tensor<8xi32>"),
    "other types": kernel_text("    %a = arith.constant 1.0 : f32\n    %b = arith.addi %a, %n : i32"),
    "a store of another type": kernel_text("    %a = arith.constant 1.0 : f64\n    tt.store %x, %a : !tt.ptr<i32>"),
    "a store to a number": kernel_text("    tt.store %n, %n : !tt.ptr<i32>"),
    "a load of a number": kernel_text("    %a = tt.load %n : i32"),
    "a mask of numbers": kernel_text("    %a = tt.load %x, %n : !tt.ptr<i32>"),
    "a condition of numbers": kernel_text("    scf.if %n {\n    }"),
    "a step of 0": kernel_text(
        ONE + "    %c0 = arith.constant 0 : i32\n    scf.for %i = %c0 to %n step %c0  : i32 {\n    }"
    ),
    "a negative step": kernel_text(
        ONE + "    %m = arith.constant -1 : i32\n    scf.for %i = %n to %c1 step %m  : i32 {\n    }"
    ),
    "a division by 0": kernel_text(
        RANGE + "    %z = arith.constant dense<0> : tensor<8xi32>\n    %a = arith.divsi %r, %z : tensor<8xi32>\n"
        "    %b = arith.remui %r, %z : tensor<8xi32>\n    %m = arith.constant dense<-2147483648> : tensor<8xi32>\n"
        "    %o = arith.constant dense<-1> : tensor<8xi32>\n    %d = arith.divsi %m, %o : tensor<8xi32>"
    ),
    "a shift too far": kernel_text("    %c = arith.constant 99 : i32\n    %a = arith.shli %n, %c : i32"),
    "an index outside of a block": kernel_text(
        RANGE + "    %z = arith.constant dense<1000000> : tensor<8xi32>\n"
        "    %a = tt.gather %r[%z] {axis = 0 : i32} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>"
    ),
    "an axis that is not there": kernel_text(
        RANGE + "    %a = tt.expand_dims %r {axis = 7 : i32} : tensor<8xi32> -> tensor<8x1xi32>"
    ),
    "an order that repeats": kernel_text(
        RANGE + "    %a = tt.trans %r {order = array<i32: 0, 0>} : tensor<8xi32> -> tensor<8x8xi32>"
    ),
    "a reshape to another size": kernel_text(RANGE + "    %a = tt.reshape %r : tensor<8xi32> -> tensor<9xi32>"),
    "a range backwards": kernel_text("    %r = tt.make_range {end = 0 : i32, start = 8 : i32} : tensor<8xi32>"),
    "a range of 10 billion": kernel_text(
        "    %r = tt.make_range {end = 9999999999 : i32, start = 0 : i32} : tensor<8xi32>"
    ),
    "a range without an end": kernel_text("    %r = tt.make_range : tensor<8xi32>"),
    "an axis of the grid": kernel_text("    %a = tt.get_program_id w : i32"),
    "a huge reduction": kernel_text(
        TO_SHAPE.format(1048576)
        + REDUCE.format(0, "arith.muli %p, %q : i32\n      %u = arith.addi %p, %q : i32", 1048576)
    ),
    "a reduction along nothing": kernel_text(TO_SHAPE.format(8) + REDUCE.format(3, "arith.addi %p, %q : i32", 8)),
    "a reduction of a load": kernel_text(TO_SHAPE.format(8) + REDUCE.format(0, "tt.load %x : !tt.ptr<i32>", 8)),
    "a reduction that calls itself": kernel_text(
        TO_SHAPE.format(8) + REDUCE.format(0, "tt.call @kernel(%x, %n) : (!tt.ptr<i32>, i32) -> i32", 8)
    ),
    "recursion": kernel_text("    tt.call @kernel(%x, %n) : (!tt.ptr<i32>, i32) -> ()"),
    "a call of nothing": kernel_text("    tt.call @other(%x) : (!tt.ptr<i32>) -> ()"),
    "a call with other types": kernel_text(
        "    tt.call @f(%x) : (!tt.ptr<i32>) -> ()", more="  tt.func private @f(%a: i32) {\n    tt.return\n  }\n"
    ),
    "a call with other results": kernel_text(
        "    %a:2 = tt.call @f(%n) : (i32) -> (i32, i32)",
        more="  tt.func private @f(%a: i32) -> i32 {\n    tt.return %a : i32\n  }\n",
    ),
    "calls that double": doubling_calls(60),
    "a block without an end": kernel_text(
        "    %c = arith.constant true\n    cf.cond_br %c, ^bb1, ^bb2\n  ^bb1:\n"
        "    %a = arith.addi %n, %n : i32\n  ^bb2:"
    ),
    "a branch to nowhere": kernel_text("    cf.br ^bb7"),
    "a branch with too little": kernel_text("    cf.br ^bb1\n  ^bb1(%a: i32):"),
    "values that turn": turning(900),
    "deep conditions": nested(3000),
    "deep conditions that can be read": nested(90),
    "deep loops": nested_loops(60),
    "a loop without a body": kernel_text(ONE + "    scf.for %i = %c1 to %c1 step %c1  : i32"),
    "a while without a condition": kernel_text(
        "    %a = scf.while (%b = %n) : (i32) -> i32 {\n    scf.yield %b : i32\n    } do {\n"
        "    ^bb0(%b: i32):\n    scf.yield %b : i32\n    }"
    ),
    "a yield of another type": kernel_text(
        f"{ONE}    %f = arith.constant 1.0 : f32\n"
        f"    %a = scf.for %i = %c1 to %n step %c1 iter_args(%b = %n) -> (i32)  : i32 {{\n"
        f"    scf.yield %f : f32\n    }}"
    ),
    "a message of percent signs": kernel_text(
        '    tt.print " %s %n {0.__class__} " {hex = false, isSigned = array<i32: 1>} : %n : i32'
    ),
    "a message of no text": kernel_text("    tt.print %n : i32"),
    "a claim that fails": kernel_text('    %f = arith.constant false\n    tt.assert %f, "%s {x} \\22" : i1'),
    "a descriptor of numbers": kernel_text(
        "    %a = tt.make_tensor_descriptor %n, [%n], [%n] : i32, !tt.tensordesc<tensor<8xi32>>"
    ),
    "a pointer to nowhere": kernel_text(
        "    %p = tt.int_to_ptr %n : i32 -> !tt.ptr<i32>\n    tt.store %p, %n : !tt.ptr<i32>"
    ),
}
# What is no more than odd, or what a GPU leaves undefined, runs.
HARMLESS = {
    "a division by 0", "a shift too far", "an index outside of a block", "a message of percent signs",
    "a pointer to nowhere", "values that turn", "deep conditions that can be read", "a huge reduction",
    "a huge constant", "a constant of no number", "deep loops",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_ends_soon_in_an_error_of_the_machine(name):
    error = end_of(HOSTILE[name])
    assert (error is None) == (name in HARMLESS)


def test_nothing_of_a_text_is_run():
    """An expression of Python stands wherever a text may hold a name, a string or a number."""
    words = "__import__('builtins').__dict__.update(was_run=True)"
    eval(words)
    assert builtins.__dict__.pop("was_run")
    texts = [
        f"    %a = arith.constant {words} : i32", f"    %a = arith.constant dense<[{words}]> : tensor<1xi32>",
        f'    tt.print "{words}" {{hex = false, isSigned = array<i32: 1>}} : %n : i32',
        f'    %f = arith.constant false\n    tt.assert %f, "{words}" : i1', f'    tt.call @"{words}"(%n) : (i32) -> ()',
        f"    %a = arith.addi %n, %n {{axis = {words}, {words} = 1 : i32}} : i32", f"    %a = arith.{words} %n : i32",
        f'    %a = tt.extern_elementwise %n {{libname = "{words}", libpath = "{words}", symbol = "{words}"}} : '
        "(i32) -> i32",
        f"    %a = arith.constant 1 : {words}", f"    cf.br ^{words}", f"    %{words} = arith.constant 1 : i32",
        "    %a = arith.__init__ %n : i32", "    %a = tt.__init__ %n : i32", "    %a = tt.of_call %n : i32",
        f'    %a = arith.addi %n, %n : i32 loc("{words}":1:1)', "    %a = tt.system %n : i32",
    ]  # fmt: skip
    ends = [end_of(kernel_text(text)) for text in texts]
    assert not hasattr(builtins, "was_run") and sum(end is not None for end in ends) > len(texts) / 2


# Without end

ENDLESS = {
    "for": """
    %c0 = arith.constant 0 : i64
    %c1 = arith.constant 1 : i64
    %m = arith.constant 9223372036854775807 : i64
    scf.for %i = %c0 to %m step %c1  : i64 {
    }""",
    "for, of another length in each program": """
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %m = arith.constant 2147483640 : i32
    %p = tt.get_program_id x : i32
    %e = arith.addi %m, %p : i32
    scf.for %i = %c0 to %e step %c1  : i32 {
    }""",
    "while": """
    %c1 = arith.constant 1 : i32
    %t = arith.constant true
    %w = scf.while (%a = %c1) : (i32) -> i32 {
      scf.condition(%t) %a : i32
    } do {
    ^bb0(%a: i32):
      scf.yield %a : i32
    }""",
    "while, of one program alone": """
    %p = tt.get_program_id x : i32
    %c1 = arith.constant 1 : i32
    %w = scf.while (%a = %p) : (i32) -> i32 {
      %t = arith.cmpi eq, %a, %c1 : i32
      scf.condition(%t) %a : i32
    } do {
    ^bb0(%a: i32):
      scf.yield %a : i32
    }""",
    "while, for an atomic": """
    %c1 = arith.constant 1 : i32
    %c9 = arith.constant 9 : i32
    %w = scf.while (%a = %c1) : (i32) -> i32 {
      %o = tt.atomic_cas acq_rel, gpu, %x, %c9, %c9 : (!tt.ptr<i32>, i32, i32) -> i32
      %t = arith.cmpi ne, %o, %c9 : i32
      scf.condition(%t) %a : i32
    } do {
    ^bb0(%a: i32):
      scf.yield %a : i32
    }""",
    "blocks": """
    cf.br ^bb1
  ^bb1:
    cf.br ^bb1
  ^bb2:""",
    "blocks that part": """
    %p = tt.get_program_id x : i32
    %c1 = arith.constant 1 : i32
    %t = arith.cmpi eq, %p, %c1 : i32
    cf.br ^bb1
  ^bb1:
    cf.cond_br %t, ^bb1, ^bb2
  ^bb2:""",
    "a function of blocks": "    tt.call @f() : () -> ()",
    "a reduction": TO_SHAPE.format(8) + REDUCE.format(
        0, "arith.addi %p, %q : i32\n      %c0 = arith.constant 0 : i32\n      %c1 = arith.constant 1 : i32\n"
        "      %m = arith.constant 2147483647 : i32\n      scf.for %i = %c0 to %m step %c1  : i32 {\n      }", 8),
    "loops in loops": "    %c0 = arith.constant 0 : i32\n" + ONE + "".join(
        f"    scf.for %i{i} = %c0 to %n step %c1  : i32 {{\n" for i in range(20)) + "    }\n" * 20,
}  # fmt: skip
FUNCTION = "  tt.func private @f() {\n    cf.br ^bb1\n  ^bb1:\n    cf.br ^bb1\n  }\n"


@pytest.mark.parametrize("name", ENDLESS)
def test_a_kernel_without_end_is_stopped(name):
    error = end_of(kernel_text(ENDLESS[name], more=FUNCTION), seconds=0.2)
    assert isinstance(error, KernelError) and "ran longer than it may" in str(error)


def test_a_grid_without_end_is_stopped():
    error = end_of(
        kernel_text(RANGE + "    %a = arith.addi %r, %r : tensor<8xi32>"), grid=(2**31 - 1, 1, 1), seconds=0.2
    )
    assert isinstance(error, KernelError) and "ran longer than it may" in str(error)


# What does not fit together


def test_a_misfit_is_named_with_its_line(monkeypatch):
    """What the check of types lets through ends in the same kind of error, which says where."""
    place = '#loc1 = loc("kernel.py":17:4)'
    text = kernel_text(RANGE + "    %a = arith.addi %r, %n : tensor<8xi32> loc(#loc1)", more=place)
    assert str(end_of(text)) == "the types of `arith.addi` do not fit together, line 17"

    def fail(*arguments):
        raise ValueError("no such axis")

    monkeypatch.setattr(Run, "program_ids", fail)
    error = end_of(kernel_text("    %p = tt.get_program_id x : i32 loc(#loc1)", more=place))
    assert str(error) == "`tt.get_program_id` cannot be carried out, line 17: no such axis"


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_what_is_no_misfit_passes(error, monkeypatch):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(Run, "program_ids", fail)
    with pytest.raises(error):
        launch(kernel_text("    %p = tt.get_program_id x : i32"))
