"""Files that appear complete or not at all, and paths as they are given, checked before use.

A new file is written beside its target under a temporary name and then takes its place.  The
target keeps its permissions; where it is a symbolic link, the file behind the link is replaced.

Temporary files are locked (``flock``) as long as they are written, and the system releases the
lock of a process that was killed.  Each save removes the temporary files of its own target that
nobody holds: of other savers at work it touches none, on whatever machine or in whatever
container they run.  Where the file system knows no locks, leftovers stay.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from polyattn.errors import InvalidInput, InvalidType
from polyattn.quoting import shown

try:
    import fcntl
except ImportError:  # Windows: nothing is locked, and leftovers stay
    fcntl = None  # type: ignore[assignment]


# Names of files whose content everyone knows.
FORMATS = (
    ".safetensors", ".json", ".pkl", ".pickle", ".joblib", ".npy", ".npz", ".pt", ".pth", ".onnx",
    ".h5", ".csv", ".tsv", ".parquet", ".pq", ".arrow", ".feather", ".ipc", ".html",
)  # fmt: skip


def write_atomically(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Let ``write`` fill a new file that takes its place complete, or not at all."""
    target = _target(file_to_write(path))
    _require_place(target)
    _remove_leftovers(target)
    with _temporary(target) as (handle, temporary):
        if target.is_file():
            mode = stat.S_IMODE(target.stat().st_mode)
        else:  # the permissions of any new file
            os.umask(mask := os.umask(0))
            mode = 0o666 & ~mask
        with os.fdopen(handle, "wb", closefd=False) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)


def require_writable(path: str | os.PathLike[str], name: str = "path") -> Path:
    """Refuse a file that could not be written, before the work and not after it.

    Makes a temporary file where ``write_atomically`` would, and removes it: folders that are
    missing, closed, read-only or full, and names that are too long, are found for certain.
    """
    given = file_to_write(path, name)
    target = _target(given)
    folder = target.parent
    if not folder.is_dir():
        raise InvalidInput(f"the folder {str(folder)!r} of {name} does not exist; make it first.")
    _require_place(target)
    require_writable_folder(folder, name, target.name)
    return given


def require_writable_folder(folder: Path, name: str = "path", file: str = "file") -> None:
    """Refuse a folder in which no file can be made; it is tried."""
    try:
        with _temporary(folder / file):
            pass
    except OSError as error:
        raise InvalidInput(
            f"the folder {str(folder)!r} of {name} cannot be written to "
            f"({error.strerror or error})."
        ) from None


def _target(path: Path) -> Path:
    """The file that is meant: behind a symbolic link, the one that it leads to."""
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return target


def _require_place(target: Path) -> None:
    """A folder that is there, and nothing in the place of the file that is none."""
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(target.parent)!r} does not exist; make it first.")
    if target.exists() and not target.is_file():
        raise InvalidInput(f"{str(target)!r} is no ordinary file; name one to be written.")


@contextmanager
def _temporary(target: Path) -> Iterator[tuple[int, str]]:
    """A new locked file beside the target; whatever happens, it is gone or moved afterwards."""
    while True:
        temporary = str(target.parent / f"{_prefix(target)}{secrets.token_hex(6)}.tmp")
        try:
            handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            # Under the name that was given, not that of a temporary file beside it.
            raise OSError(error.errno, error.strerror, str(target)) from None
        try:
            _lock(handle, wait=True)
            # Between its making and its locking another saver may have taken it for a leftover.
            if os.fstat(handle).st_nlink == 0:
                continue
            yield handle, temporary
            return
        finally:
            Path(temporary).unlink(missing_ok=True)
            os.close(handle)


def _remove_leftovers(target: Path) -> None:
    """Remove the temporary files of this target that no living saver holds."""
    prefix = _prefix(target)
    with os.scandir(target.parent) as folder:
        names = [each.path for each in folder if each.name.startswith(prefix)]
    for name in names:
        # It may be moved to its place meanwhile, or belong to somebody else.
        with suppress(OSError):
            handle = os.open(name, os.O_RDWR)
            try:
                if _lock(handle, wait=False):
                    os.unlink(name)
            finally:
                os.close(handle)


def _lock(handle: int, wait: bool) -> bool:
    """Take the lock of a file; whether it was had."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # held by another, or the file system knows no locks
        return False
    return True


def _prefix(target: Path) -> str:
    """How the temporary files of a target begin: never too long, whatever its name is."""
    name = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
    return f".polyattn-{name}-"


def file_to_write(path: object, name: str = "path") -> Path:
    """The path of a file that may or may not be there yet; refused if it names a folder."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise InvalidType(f"{name} must name a file, as a text or a Path; got {shown(path)}.")
    if not text or "\0" in text:
        raise InvalidInput(f"{name} must name a file; got {shown(text)}.")
    given = Path(text)
    if given.is_dir():
        raise InvalidInput(f"{name} {str(given)!r} is a folder; name a file in it.")
    return given


def refuse_other_format(path: object, suffix: str, name: str = "path") -> None:
    """Refuse a file whose name says that it is of another format than that of ``suffix``."""
    given = file_to_write(path, name)
    if given.suffix.lower() in set(FORMATS) - {suffix}:
        raise InvalidInput(
            f"{name} {str(given)!r} would hold the format {suffix}, and its name says another one; "
            f"call it {given.with_suffix(suffix).name!r}."
        )


def file_to_read(path: object, name: str = "path") -> Path:
    """The path of a file that is there."""
    given = file_to_write(path, name)
    if not given.is_file():
        raise FileNotFoundError(f"there is no file {str(given)!r}.")
    return given
