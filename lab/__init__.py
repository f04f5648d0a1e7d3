"""The bench the kernels lie on: what notebooks, exercises, tests and the grader share.

Import the module you need (`from lab.check import check`). The first of them that touches Triton imports `lab.device`,
which decides between the GPU and the interpreter.
"""
