"""One operation a file. Importing this package lets kernels run where there is no GPU."""

import lab.device  # noqa: F401
