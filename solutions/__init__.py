"""The source of each exercise: tasks, blanks, hints, references and cases."""

import lab.device as device  # the choice between GPU and interpreter comes before any `import triton`

__all__ = ["device"]
