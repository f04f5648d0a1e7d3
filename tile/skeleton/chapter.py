# %% [markdown]
# # CHAPTER · TITLE
#
# **Replace this by the chapter's one question: what does it cost to double a number?**
#
# What you need:
#
# - Chapter 1.
# - Replace these: what a reader must know,
# - and which chapters must come before.
#
# What you will be able to do:
#
# - Replace these by three things that a reader can do afterwards,
# - each of which the chapter shows
# - and the exercise asks for.

# %% [markdown]
# DRAFT

# %%
import textwrap

import torch

from kernels.STEM import (
    BLOCK,
    STEM,
    STEM_bytes,
    STEM_flops,
    STEM_kernel,
    STEM_reference,
)
from lab.compiler import compiled
from lab.device import DEVICE, gpu_named
from lab.measure.roofline import arithmetic_ms, memory_ms
from lab.plots import ownership
from lab.show import show
from lab.trace import trace

# %% [markdown]
# ## The operation
#
# $$\text{out}_i = 2 x_i$$
#
# Give the formula, and one example worked by hand on at most eight numbers:
#
# | $i$ | 0 | 1 | 2 | 3 |
# | --- | --- | --- | --- | --- |
# | $x$ | 1 | 2 | 3 | 4 |
# | out | 2 | 4 | 6 | 8 |

# %%
STEM(torch.arange(1.0, 5.0, device=DEVICE))

# %% [markdown]
# ## What should it cost?
#
# Count bytes and operations, and divide by what a GPU does in a second. The reader
# predicts before anything is measured. Here: an element is read, multiplied once, and
# written.

# %%
big = torch.empty(2**28, device="meta")  # a shape and a dtype, no memory
h200 = gpu_named("h200")
moving = memory_ms(STEM_bytes(big), gpu=h200)
counting = arithmetic_ms(STEM_flops(big), "fp32", gpu=h200)
print(f"moving {moving:.3f} ms, arithmetic {counting:.3f} ms")

# %% [markdown]
# ## One program's share
#
# Show which program owns which elements. Lanes that the mask switches off are hollow.

# %%
x, out = torch.arange(1.0, 29.0, device=DEVICE), torch.empty(28, device=DEVICE)
with trace() as t:
    STEM_kernel[(4,)](x, out, 28, BLOCK=8)
ownership(t, "out")

# %% [markdown]
# ## The kernel
#
# Show it whole, from its file. Then take it apart: three to five times a paragraph, and
# one to three lines of code that prove it.

# %%
show(STEM_kernel)

# %% [markdown]
# **Which elements are mine?** Program 2 begins at element 2 × 8.

# %%
stores = [access for access in t.launches[0].accesses if access.kind == "store"]
stores[2].program, stores[2].offsets

# %% [markdown]
# ## Is it right?
#
# Compare with the reference. Keep odd sizes in sight: faults live at the edges of a
# block.

# %%
for n in (1, BLOCK - 1, BLOCK, BLOCK + 1, 98_765):
    x = torch.randn(n, device=DEVICE)
    right = torch.equal(STEM(x), STEM_reference(x))
    print(f"{n:6} elements: {right}")

# %% [markdown]
# ## What did the compiler make of it?
#
# Look for the instruction that matters; here, loads of four numbers at once.

# %%
code = compiled(STEM_kernel, big, big, 2**28, BLOCK=BLOCK, target="sm_90")
print(code.count("ld.global.v4"), "of", code.count("ld.global"), "loads are wide")

# %% [markdown]
# ## Is it fast?
#
# Show the speed over the size beside every peer, with the roof as a line, and let a
# sentence that is printed from the rows read it.

# %% [markdown]
# NOT_MEASURED

# %% [markdown]
# ## Break it
#
# One deliberate fault, and what the checker says. Here a launch claims 32 elements
# where there are 28.

# %%
x = torch.ones(28, device=DEVICE)
with trace() as t:
    STEM_kernel[(4,)](x, out, 32, BLOCK=8)
for fault in t.out_of_bounds:
    print(textwrap.fill(str(fault), 88))

# %% [markdown]
# ## Exercise
#
# Open [exercises/NAME.ipynb](../exercises/NAME.ipynb). Say what there is to build, and
# why.

# %% [markdown]
# ## Remember
#
# - Three things to remember:
# - what this operation taught,
# - and where it holds beyond it.
#
# **Next:** say where to go from here. Sources: name the papers and pages that the
# chapter stands on.
