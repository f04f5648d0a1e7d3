"""One operation a file. Importing this package settles on the GPU or the interpreter before Triton is imported."""

import lab.device  # noqa: F401
