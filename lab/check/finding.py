"""One thing that is wrong with an answer."""

from collections.abc import Callable
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
    known: str = ""  # where the wrong elements are, for want of a cause
    diagnose: Callable[[], str] | None = None  # looks for the cause, which takes time

    def explain(self) -> None:
        """Look for the cause, where that was not done yet."""
        if self.diagnose is not None:
            self.cause, self.diagnose = self.diagnose(), None
