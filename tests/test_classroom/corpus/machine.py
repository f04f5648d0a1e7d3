# Answers to `scale_add` that attack the machine.

# %% an endless loop -> timeout
def scale_add(x, y, alpha):
    while True:
        pass


# %% an endless loop in the cell itself -> timeout
while True:
    pass


# %% a sleep that nothing interrupts -> timeout
import signal
import time

for number in range(1, 32):
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass


def scale_add(x, y, alpha):
    time.sleep(3600)


# %% a fork bomb -> crashed
import os


def scale_add(x, y, alpha):
    while True:
        try:
            os.fork()
        except OSError:
            pass


# %% a memory bomb -> crashed
def scale_add(x, y, alpha):
    kept = []
    while True:
        kept.append(bytearray(64 << 20))
        kept[-1][::4096] = b"x" * (16384)


# %% a hundred megabytes of output -> crashed
def scale_add(x, y, alpha):
    for _ in range(100):
        print("x" * (1 << 20))
    return x


# %% a hundred megabytes sent back -> crashed
import os


def scale_add(x, y, alpha):
    for descriptor in range(3, 32):
        try:
            os.write(descriptor, b"\xff\xff\xff\xff" + (2**40).to_bytes(8, "big"))
        except OSError:
            pass
    return x


# %% a huge file -> error
def scale_add(x, y, alpha):
    with open("/tmp/huge", "wb") as file:
        while True:
            file.write(bytes(1 << 20))


# %% huge files one beside another -> error
def scale_add(x, y, alpha):
    for number in range(1000):
        with open(f"/dev/shm/{number}", "wb") as file:
            file.write(bytes(8 << 20))


# %% a file where only the system may write -> error
def scale_add(x, y, alpha):
    with open("/usr/lib/tile", "wb") as file:
        file.write(b"")


# %% a file beside the course -> error
import lab


def scale_add(x, y, alpha):
    with open(lab.__file__, "ab") as file:
        file.write(b"\n")


# %% signals to everybody -> crashed
import os
import signal


def scale_add(x, y, alpha):
    for pid in (os.getppid(), 1, -1):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    os.kill(os.getpid(), signal.SIGKILL)


# %% the network -> error
import socket


def scale_add(x, y, alpha):
    socket.create_connection(("1.1.1.1", 53), timeout=2)


# %% a crash of Python itself -> crashed
import ctypes


def scale_add(x, y, alpha):
    ctypes.string_at(0)


# %% a stack that never ends -> error
def scale_add(x, y, alpha):
    return scale_add(x, y, alpha)


# %% nobody answers -> crashed
import os

os.close(1)
for descriptor in range(3, 64):
    try:
        os.close(descriptor)
    except OSError:
        pass


def scale_add(x, y, alpha):
    return x
