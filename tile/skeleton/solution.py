# ---
# jupyter:
#   chapter: CHAPTER
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Exercise CHAPTER: siblings of TITLE
#
# One small kernel so far; a chapter has three to five, each one idea further than the
# last.
#
# - A blank looks like `____`. Replace it, run the cell, then run the check below it.
# - **The line already printed under each check is the one you are working towards.**
#   Run the check and it is replaced by what your own code does: which case failed, at
#   which elements, and the likely cause.
# - Stuck? `hint("STEM_plus_one")` asks you a question; call it again
#   for a nudge, and again for the shape of the answer.
#   `reset("STEM_plus_one")` puts the blanks back and keeps a copy of
#   what you wrote; `progress()` shows how far you are.
#
# The work must be done by the kernel: an answer that lets PyTorch compute the result
# does not pass.

# %% [markdown]
# Run the next two cells first. Importing `lab` lets kernels run on your CPU where there
# is no GPU.

# %% tags=["active-ipynb"]
# from lab.check import check
# from lab.progress import hint, progress, reset, solution

# %%
import torch
import triton
import triton.language as tl

# %% tags=["spec"]
from lab.task import Case, Task

TASKS: dict[str, Task] = {}

# %% [markdown]
# ## 1. Twice, plus one: which elements exist? (1 point)
#
# `out = 2 * x + 1` for a vector of `n` elements. Replace this task: say what to
# compute, and show it on at most eight numbers.
#
# | `x` | 1 | 2 | 3 |
# | --- | --- | --- | --- |
# | `out` | 3 | 5 | 7 |
#
# Each program owns 256 consecutive elements. The mask says which of them exist.


# %% task="STEM_plus_one"
@triton.jit
def STEM_plus_one_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Each program writes BLOCK consecutive elements of out."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n  # blank: mask = ____
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, 2 * x + 1, mask=mask)


def STEM_plus_one(x):
    """Return 2 * x + 1, for a contiguous vector."""
    out = torch.empty_like(x)
    n = x.numel()
    STEM_plus_one_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
    return out


# %% tags=["active-ipynb"]
# check("STEM_plus_one", STEM_plus_one)


# %% tags=["spec"]
def STEM_plus_one_reference(x):
    """The specification of `STEM_plus_one`."""
    return 2 * x + 1


def vector(n, dtype=torch.float32):
    """Return a maker of one vector of eighths from -4 to 4: exact in every dtype."""

    def make(generator):
        options = {"generator": generator, "device": generator.device}
        eighths = torch.randint(-32, 33, (n,), **options)
        return ((eighths / 8).to(dtype),)

    return make


TASKS["STEM_plus_one"] = Task(
    name="STEM_plus_one",
    title="Twice, plus one: which elements exist?",
    points=1,
    hints=(
        "The last program has offsets past the end of x. How can it know them?",
        "Comparing a block of offsets with one number gives a block of True and False.",
        "`mask = offs ____ n`, with one comparison sign in the gap.",
    ),
    reference=STEM_plus_one_reference,
    cases=(
        Case("one element", vector(1)),
        Case("one block, masked tail", vector(100)),
        Case("four blocks, exactly full", vector(1024), programs=4),
        Case("one past a block", vector(257), programs=2),
        Case("nothing divides", vector(1111), programs=2),
        Case("empty", vector(0)),
        Case("bf16", vector(300, torch.bfloat16), programs=2),
    ),
)

# %% [markdown]
# ## Done?
#
# Run `progress()` for your points and the next step. When you have passed a task,
# `solution("STEM_plus_one")` shows how we wrote it; yours may well be
# better.
