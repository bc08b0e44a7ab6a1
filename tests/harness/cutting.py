"""`python -m tests.harness.cutting 3 module arguments`: run a module whose reader goes away with the third line that it
has written, on standard output or standard error. Deterministic: the pipe is this process's own at both ends, and each
line goes into it by itself."""

from __future__ import annotations

import fcntl
import io
import os
import runpy
import sys

#: More than any command writes before its reader goes.
_ROOM = 1 << 20


class _Counting(io.RawIOBase):
    """A pipe's end; both streams write to one."""

    lines = 0

    def __init__(self, reads: int, writes: int, after: int) -> None:
        self._reads, self._writes, self._after = reads, writes, after
        self._close_at_last()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._writes

    def write(self, data: object) -> int:
        text = bytes(data)  # type: ignore[call-overload]  # a buffer
        line, end, _ = text.partition(b"\n")
        os.write(self._writes, line + end)
        _Counting.lines += len(end)
        self._close_at_last()
        return len(line) + len(end)

    def _close_at_last(self) -> None:
        if _Counting.lines >= self._after and self._reads >= 0:
            os.close(self._reads)
            self._reads = -1


def main() -> None:
    after, module, *arguments = sys.argv[1:]
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, _ROOM)
    for number in (1, 2):
        os.dup2(writes, number)
    os.close(writes)
    both = _Counting(reads, 1, int(after))
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.BufferedWriter(both, 1), write_through=True) for _ in range(2))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
