"""The bench the kernels lie on: what notebooks, exercises, tests and the grader share.

Import the module you need (`from lab.check import check`). All that launch kernels import `lab.device`, which makes the
CPU Triton's device where there is no GPU.
"""
