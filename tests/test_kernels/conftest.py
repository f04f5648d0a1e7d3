"""Where there is a GPU, every kernel test runs on it and carries the marker `gpu`."""

import pytest

from lab.device import INTERPRETED


def pytest_collection_modifyitems(items):
    if not INTERPRETED:
        for item in items:
            if "test_kernels" in item.path.parts:
                item.add_marker(pytest.mark.gpu)
