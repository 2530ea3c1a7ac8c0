"""XLA's loader writes about every executable that it loads, straight to file descriptor 2: those lines are left out.

On a processor with AVX-512 it compares the options of the code generator (``+prefer-no-gather``) with the features of
the processor, and reports every program as made for another machine; programs are only kept for this very processor.
No log level hides that: it is an error's, and read when JAX is imported, which a user may do first.
"""

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator

# Not from the start of a line: a progress bar may have left one unfinished.
_OF_THE_LOADER = re.compile(
    rb"[IWE]\d{4} [\d:.]+ +\d+ ("
    rb"cpu_aot_loader\.cc:\d+\] [^\n]*Machine type used for XLA:CPU compilation doesn't match"
    rb"|pjrt_executable\.cc:\d+\] Assume version compatibility)[^\n]*\n?"
)
_STANDARD_ERROR = 2
_turn = threading.Lock()  # the descriptor is the whole process's


@contextlib.contextmanager
def without_loader_messages() -> Iterator[None]:
    """Gather what is written to standard error, and pass on all but the loader's lines at the end.

    Loading takes milliseconds.  What a child process started meanwhile by another thread writes to standard error, and
    what a crash of this process writes, goes to the temporary file and is lost.
    """
    with _turn, contextlib.ExitStack() as stack:
        try:
            gathered = stack.enter_context(tempfile.TemporaryFile(buffering=0))
            original = os.dup(_STANDARD_ERROR)
        except OSError:  # there is no standard error, or no place for a file
            yield
            return
        stack.callback(os.close, original)
        os.dup2(gathered.fileno(), _STANDARD_ERROR)
        try:
            yield
        finally:
            os.dup2(original, _STANDARD_ERROR)
            gathered.seek(0)
            _write(_OF_THE_LOADER.sub(b"", gathered.read()))


def _write(content: bytes) -> None:
    with contextlib.suppress(OSError):  # as for anything else that is written there, nobody may be listening
        while content:
            content = content[os.write(_STANDARD_ERROR, content) :]
