"""Triton's disk cache, made quick to ask and possible to write to."""

import atexit
import functools
import os
import shutil
import tempfile

import triton
from triton.runtime import cache


def prepare() -> None:
    """Let this process use Triton's disk cache at little cost, wherever it runs."""
    cache.triton_key = cheap_key
    find_folder()


@functools.lru_cache
def cheap_key() -> str:
    """Return what tells one installed Triton from another in the disk cache.

    Triton reads its whole library of 460 MB for this, 2 s in every process; size and time of the file say as much.
    """
    library = os.stat(triton._C.libtriton.__file__)
    return f"{triton.__version__}-{library.st_size}-{library.st_mtime_ns}"


def find_folder() -> None:
    """Give the cache a folder that can be written to: in a sandbox, its usual one may not be."""
    try:
        os.makedirs(triton.knobs.cache.dir, exist_ok=True)
        tempfile.TemporaryFile(dir=triton.knobs.cache.dir).close()
    except OSError:
        folder = os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="triton-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
