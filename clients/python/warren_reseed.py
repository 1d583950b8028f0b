"""Gives a Python process of its own random numbers after a fork, reset or resume of the sandbox that it runs in.

Import it once, in the main thread, in a process that is running when a snapshot may be taken:

    import warren_reseed

From then on `random`, NumPy's global generator and OpenSSL's are seeded anew after each restore. The kernel sends a signal (SIGURG) that is there before
the process goes on; Python acts on it as soon as its main thread is between two steps of Python code. What must not use a stale generator even for that
moment, or runs in another thread, calls `check()` first: it costs about a microsecond. Generators that a program has made for itself
(`random.Random()`, `numpy.random.default_rng()`) are its own to seed: in a function that it gives to `on_restore()`.

Outside of a sandbox, and where SIGURG has a handler already, there is no signal, and `check()` still works.
"""

import os
import signal
import sys

FOLDER = "/run/warren"
SIGNAL = signal.SIGURG

_callbacks = []
_generation = None
_file = None
_folder = None


def generation():
    """The machine's generation: a number that grows with each restore; None outside of a sandbox."""
    global _file
    try:
        if _file is None:
            _file = os.open(FOLDER + "/generation", os.O_RDONLY | os.O_CLOEXEC)
        return int(os.pread(_file, 32, 0))
    except (OSError, ValueError):
        return None


def check():
    """Seeds anew if the machine was restored since the last time. Whether it was."""
    global _generation
    now = generation()
    if now == _generation:
        return False
    _generation = now
    reseed()
    return True


def reseed():
    """Seeds `random`, NumPy and OpenSSL from the kernel, as far as they are in use, and calls what `on_restore` was given."""
    modules = sys.modules
    if "random" in modules:
        modules["random"].seed()
    if "numpy.random" in modules:
        modules["numpy.random"].seed()
    if "ssl" in modules:
        modules["ssl"].RAND_add(os.urandom(32), 0.0)
    for callback in list(_callbacks):
        callback()


def on_restore(callback):
    """Calls `callback()` after each restore, in the main thread or in one that calls `check()`. Can be used as a decorator."""
    _callbacks.append(callback)
    return callback


def _arm():
    """Asks the kernel for a signal when something changes in the folder; False where that cannot be."""
    global _folder
    try:
        import fcntl

        if signal.getsignal(SIGNAL) not in (signal.SIG_DFL, signal.SIG_IGN, _on_signal):
            return False
        signal.signal(SIGNAL, _on_signal)
        _folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.fcntl(_folder, fcntl.F_SETSIG, SIGNAL)
        fcntl.fcntl(_folder, fcntl.F_NOTIFY, fcntl.DN_MODIFY | fcntl.DN_MULTISHOT)
        return True
    except (AttributeError, ImportError, OSError, ValueError):
        return False


def _on_signal(number, frame):
    check()


# The child of an `os.fork()` has no such request of its own.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_arm)
armed = _arm()
_generation = generation()
