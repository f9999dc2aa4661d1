"""The journal: the report of a process as a file that can be read at every moment.

It is a report as one JSON object, and after it, until the report is final, objects with what has
changed since: an import then costs the text of its own Groups, not of all. `read` puts them
together.

Other users of the machine can write to the system's temporary folder too. So no name in it is
trusted that they could have made: folders must be our own, and files are made anew.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from turbo_physai.process import settings
from turbo_physai.process.messages import warn
from turbo_physai.process.variables import absolute

PATTERN: Final = "report-*.json"
_TEMPORARY: Final = ("/tmp", "/var/tmp", "/usr/tmp")


def read(path: Path) -> dict[str, Any]:
    """The report in a journal, with all changes that were written as a whole.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds no report.
    """
    import json

    text, decoder = path.read_text(encoding="utf-8"), json.JSONDecoder()
    report, end = decoder.raw_decode(text)
    if not isinstance(report, dict):
        raise ValueError(f"found {type(report).__name__}; accepted: a JSON object")
    while (start := text.find("{", end)) >= 0:
        try:
            changes, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError:
            break  # its process is writing it, or was killed then
        _update(report, changes)
    return report


def _update(report: dict[str, Any], changes: dict[str, Any]) -> None:
    plan = changes.pop("prepared_execution")
    report["execution"].update(changes.pop("execution"))
    report["prepared_execution"]["groups"].update(plan.pop("groups"))
    report["prepared_execution"].update(plan)
    report.update(changes)


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
        self._written: _Written | None = None

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

    def write(self, whole: Callable[[], str], changes: Callable[[], str] | None = None) -> None:
        """Writes the report. A full disk must not stop a training, so an error is a warning, once,
        and kept in `error`.

        Args:
            whole: returns the whole report.
            changes: returns what has changed since it was last written, to be appended; None if the
                file is to be replaced. It is replaced, too, where it is not the one that was
                written last, and once the changes have become longer than the report.
        """
        last, self._written = self._written, None
        try:
            if self.path is None:
                raise FileNotFoundError("there is no folder for temporary files")
            with self._folder(self.path.parent) as folder:
                if changes is not None and last is not None and last.takes_more(folder):
                    self._written = last.append(changes(), folder)
                else:
                    self._written = _replace(self.path.name, whole(), folder)
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


class _Written(NamedTuple):
    """The file as it was left: its name and identity, and the bytes of the report and of all."""

    name: str
    device: int
    inode: int
    whole: int
    size: int

    def takes_more(self, folder: int) -> bool:
        """Whether the file is still there, as it was left, and its changes are short enough."""
        try:
            found = os.stat(self.name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        is_it = (found.st_dev, found.st_ino, found.st_size) == (self.device, self.inode, self.size)
        return is_it and self.size < 2 * self.whole

    def append(self, changes: str, folder: int) -> _Written:
        content = f"{changes}\n".encode()
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with _file(os.open(self.name, flags, dir_fd=folder)) as file:
            file.write(content)
        return self._replace(size=self.size + len(content))


def _replace(name: str, whole: str, folder: int) -> _Written:
    # Written beside the file and renamed over it: a reader, or a kill in the middle, sees the old
    # state or the new one, never half of either. The draft must be new, so that it is no link that
    # somebody has left there, and a link that has the final name is replaced, not followed.
    content = f"{whole}\n".encode()
    draft = f".{name}.{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o666, dir_fd=folder)
    try:
        with _file(descriptor) as file:
            file.write(content)
            made = os.fstat(descriptor)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise
    return _Written(name, made.st_dev, made.st_ino, len(content), len(content))


def _file(descriptor: int) -> BinaryIO:
    return open(descriptor, "wb")


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
