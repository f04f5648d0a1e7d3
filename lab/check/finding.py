"""One thing that is wrong with an answer."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Finding:
    """One thing that is wrong: a reason (a fixed word), sentences for the learner, and, where known, the elements."""

    reason: str
    message: str
    cause: str = ""
    excess: np.ndarray | None = None  # how far each element is beyond what is allowed; 0 is right
    owner: np.ndarray | None = None
