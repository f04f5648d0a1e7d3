"""The main program of a sandbox: `python -m classroom.sandbox_main ROLE DESCRIPTOR` answers requests.

"answers" runs the student's cells and, again and again, the functions they define. "replay" repeats their launches
and runs nothing else of theirs. "notebook" runs nbval. Requests come from the grader; nothing that is sent back is
believed for being well formed.
"""

import gc
import json
import os
import shutil
import sys
import tempfile
from multiprocessing.connection import Connection


def role_named(name: str):
    """Return what handles the requests of a role."""
    if name == "answers":
        from classroom.answers import Answers

        return Answers()
    if name == "replay":
        from classroom.replay import Replay

        return Replay()
    from classroom.student_eye import StudentEye

    return StudentEye()


def serve(name: str, descriptor: int) -> None:
    """Answer requests, (method, arguments), until the parent hangs up."""
    connection = Connection(descriptor)
    gc.disable()  # what is imported stays: looking through it for garbage takes a third of a second
    handler = role_named(name)
    gc.freeze()
    gc.enable()
    connection.send_bytes(b"ready")
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            return
        if method == "leave":
            handler.leave()
            os._exit(0)  # Python's own end would first take apart all that was imported, here half a second
        if method == "fork":
            if not fork_for_one_student():
                return
            connection.send_bytes(b"")
            continue
        reply = getattr(handler, method)(*arguments)
        connection.send_bytes(reply if isinstance(reply, bytes) else json.dumps(reply).encode())


def fork_for_one_student() -> bool:
    """Let a forked process take over until it leaves: what it has seen goes with it, what was imported stays.

    Returns True in the forked process at once, and in this one when that has left; False if it came to a bad end.
    """
    kernels = tempfile.mkdtemp()  # as they were compiled, for this student's alone
    if pid := os.fork():
        if os.waitpid(pid, 0)[1] != 0:
            return False
        shutil.rmtree(kernels)
    else:
        os.environ["TRITON_CACHE_DIR"] = kernels
    return True


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
