"""A machine that executes TTIR, what Triton's compiler makes of a kernel, on the CPU with NumPy.

Import `lab.machine.backend` and call `activate()`; it needs triton, numpy and ml_dtypes, and nothing else of this
course. `lab.machine.execute.Kernel` runs a text of TTIR without Triton.
"""
