"""The journal: the report of a process as a file that is valid at every moment.

Other users of the machine can write to the system's temporary folder too. So no name in it is
trusted that they could have made: folders must be our own, and files are made anew.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from turbo_physai.process import settings
from turbo_physai.process.messages import warn
from turbo_physai.process.variables import absolute

PATTERN: Final = "report-*.json"
_TEMPORARY: Final = ("/tmp", "/var/tmp", "/usr/tmp")


class Journal:
    """The file of one process's report.

    Attributes:
        path: where it lies; None where there is no folder for temporary files.
        error: why it could not be written the last time, or None.
    """

    def __init__(self, path: Path | None, *, is_private: bool = False) -> None:
        """
        Args:
            path: where it lies.
            is_private: whether its folder and the one above must be out of the reach of other
                users, as they must where anybody can make folders beside them.
        """
        self.path = path
        self.error: Exception | None = None
        self._is_private = is_private
        self._has_warned = False

    @classmethod
    def of_this_process(cls, run_id: str) -> Journal:
        """The journal in the folder that the variable TURBO_PHYSAI_REPORT_DIR names; else in one
        for this user and run in the system's temporary folder."""
        # The run is part of the name: a container that starts again has its host and pid once more.
        name = PATTERN.replace("*", f"{run_id}-{os.uname().nodename}-{os.getpid()}")
        named = settings.REPORT_DIR.text()
        if named is not None:
            return cls(Path(absolute(named), name))
        folder = _temporary()
        if folder is None:
            return cls(None)
        return cls(folder / f"turbo_physai-{os.getuid()}" / run_id / name, is_private=True)

    def write(self, text: Callable[[], str]) -> None:
        """Replaces the file by what `text` returns. A full disk must not stop a training, so an
        error is a warning, once, and kept in `error`."""
        try:
            if self.path is None:
                raise FileNotFoundError("there is no folder for temporary files")
            content = f"{text()}\n".encode()
            with self._folder(self.path.parent) as folder:
                _replace(self.path.name, content, folder)
            self.error = None
        except Exception as error:
            self.error = error
            if not self._has_warned:
                self._has_warned = True
                warn(
                    f"the report of this process is not kept: {error}; --report-dir or "
                    f"{settings.REPORT_DIR.variable} names a folder that can be written"
                )

    @contextlib.contextmanager
    def _folder(self, path: Path) -> Iterator[int]:
        """The descriptor of the folder, which is made if it is not there."""
        if not self._is_private:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _opened(path) as folder:
                yield folder
            return
        with _private(path.parent, None) as base, _private(path, base) as folder:
            yield folder


def _replace(name: str, content: bytes, folder: int) -> None:
    # Written beside the file and renamed over it: a reader, or a kill in the middle, sees the old
    # state or the new one, never half of either. The draft must be new, so that it is no link that
    # somebody has left there, and a link that has the final name is replaced, not followed.
    draft = f".{name}.{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o666, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - it is open
            file.write(content)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise


@contextlib.contextmanager
def _opened(path: str | Path, flags: int = 0, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | flags, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _private(path: Path, parent: int | None) -> Iterator[int]:
    """The descriptor of a folder of our own, closed to other users; made if it is not there.

    Raises:
        OSError: it is a link or somebody else's.
    """
    name = path if parent is None else path.name
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    with _opened(name, os.O_NOFOLLOW, parent) as descriptor:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to another user ({found.st_uid})")
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(descriptor, 0o700)
        yield descriptor


def _temporary() -> Path | None:
    """The first folder for temporary files that can be written, in the order of `tempfile`, which
    takes long to import and writes a file to find out."""
    stated = (os.environ.get(variable) for variable in ("TMPDIR", "TEMP", "TMP"))
    for folder in map(absolute, filter(None, (*stated, *_TEMPORARY))):
        if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):  # noqa: PTH112
            return Path(folder)
    return None
