"""The source of each exercise: tasks, blanks, hints, references and cases."""

import lab.device as device  # kernels run on the CPU where there is no GPU

__all__ = ["device"]
