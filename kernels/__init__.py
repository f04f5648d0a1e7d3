"""One operation a file. Importing this package chooses between the GPU and the interpreter, before Triton is imported."""

import lab.device  # noqa: F401
