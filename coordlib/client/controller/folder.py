"""A broker's data folder: one process at a time, and what the next one may know of it.

The folder's lock is what a broker relies on when it registers with `previous`: the process that
held the lock before has certainly ended, so what it led need not be guarded (rule 14). `storage`
names the data; an empty folder gets a new name, so that replaced disks are not taken for kept ones.

A folder that was copied has the name of its data, but not the lock of the process that it was
copied from, which may still run. Nor does the kernel of another machine know that lock, to which a
volume was attached. So machine, kernel and lock file are noted, and where they differ `previous` is
not known. Names alone do not tell machines apart: containers have them from their image.

A folder may be deleted or replaced under its process (a lost mount, an operator's slip), which then
holds the lock of a file that nobody finds any more. It writes nothing into what lies there: another
process's data would get this one's name, and would be taken for complete.
"""

import errno
import fcntl
import logging
import os
import threading
from pathlib import Path
from secrets import token_hex
from typing import Final

import msgspec

from coordlib.client.kit.process import own_host
from coordlib.client.kit.requests import Identity
from coordlib.errors import NotReady, SetupError

_log = logging.getLogger("coordlib.client")

LOCK: Final = ".coordlib-broker.lock"
KEPT: Final = ".coordlib-broker.json"
MACHINE_ID: Final = Path("/etc/machine-id")
#: Drawn by each kernel when it starts; containers see that of their machine.
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The newest registration of a process that held the lock."""

    cluster: str
    broker: int
    #: Incarnation of the coordinator's topics: offsets of others mean something else.
    topics: str
    incarnation: int


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the folder."""

    v: int = 1
    storage: str
    #: Which lock of which machine its writer held.
    lock: str
    newest: Registered | None = None


class Folder:
    """A folder whose lock this process holds until `close`. `keep` may come from another thread.

    Raises:
        NotReady: another process holds it.
        SetupError: it cannot be written, or what lies in it cannot be read.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        #: Guards what lies in the folder: a registration may be kept while the folder is closed.
        self._writing, self._is_closed = threading.Lock(), False
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise self._unusable(problem) from problem
        try:
            self._hold()
            self._kept = self._begin()
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def storage(self) -> str:
        """The name of what outlives the process."""
        return self._kept.storage

    def previous(self, cluster: str, broker: int, topics: str) -> int:
        """The incarnation whose process has certainly ended; -1: none is known."""
        newest, is_own = self._kept.newest, self._kept.lock == self._lock_name()
        if newest is None or not is_own:
            return -1
        is_same = (newest.cluster, newest.broker, newest.topics) == (cluster, broker, topics)
        return newest.incarnation if is_same else -1

    def keep(self, newest: Registered) -> None:
        """Note the incarnation of this process for the next one; after `close`, nothing is noted.

        A disk that is full costs the next process a wait, no more: what it finds is older, and the
        controller does not take that for the process that is registered.
        """
        with self._writing:
            if self._is_closed:
                return
            try:
                self._write(newest)
            except OSError as problem:
                _log.warning(
                    "The registration cannot be kept in %s: %s. The next process waits for the "
                    "session of this one. Free space, or put the folder back.", self._path, problem,
                )  # fmt: skip

    def close(self, has_stopped: bool) -> None:
        """Release the lock. A second call does nothing.

        Args:
            has_stopped: whether the user's code has certainly stopped. Else the next process must
                not rely on that: nothing is kept for it, or the lock goes with this process only.
        """
        with self._writing:
            if self._is_closed:
                return
            self._is_closed = True
            if not has_stopped:
                try:
                    self._write(None)
                except OSError as problem:
                    _log.warning("%s stays locked until this process ends: %s", self._path, problem)
                    return
            os.close(self._lock)

    def _hold(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise NotReady(
                "Another process uses this broker's folder.",
                str(self._path),
                "End it first, or name another folder: one folder is one broker's.",
            ) from problem
        except OSError as problem:
            raise self._unusable(problem) from problem

    def _begin(self) -> Kept:
        kept = self._path / KEPT
        try:
            return msgspec.json.decode(kept.read_bytes(), type=Kept)
        except FileNotFoundError:
            self._kept = Kept(storage=token_hex(16), lock=self._lock_name())
        except (OSError, msgspec.MsgspecError) as problem:
            raise SetupError(
                f"What names this broker's data cannot be read: {problem}",
                str(kept),
                "Restore the file, or delete it with all data of this broker.",
            ) from problem
        try:
            self._write(None)
        except OSError as problem:
            raise self._unusable(problem) from problem
        return self._kept

    def _write(self, newest: Registered | None) -> None:
        """Write atomically, and sync before the return. Raises OSError: the folder is
        full, gone, or another one."""
        self._require_own()
        kept = Kept(storage=self._kept.storage, lock=self._lock_name(), newest=newest)
        draft = self._path / f"{KEPT}.new"
        with draft.open("wb") as file:
            file.write(msgspec.json.encode(kept))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path / KEPT)
        self._kept = kept

    def _require_own(self) -> None:
        there, held = (self._path / LOCK).stat(), os.fstat(self._lock)
        if (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            raise OSError(errno.ESTALE, "Another folder has come to its place")

    def _lock_name(self) -> str:
        """The machine, its kernel, and the file on it: a copy has another."""
        status = os.fstat(self._lock)
        kernel = f"{_text_of(MACHINE_ID)}/{_text_of(BOOT_ID)}"
        return f"{kernel}/{own_host()}/{status.st_dev}/{status.st_ino}"

    def _unusable(self, problem: OSError) -> SetupError:
        hint = "Make it writable, free some space, or name another folder."
        return SetupError(f"This broker's folder cannot be used: {problem}", str(self._path), hint)


def _text_of(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # containers may have no machine id, and other systems no boot id


class Home:
    """The folder of one agent, if it has one. Without, nothing outlives the process.

    Raises as `Folder`.
    """

    def __init__(self, path: Path | str | None) -> None:
        self._folder = None if path is None else Folder(path)

    @property
    def storage(self) -> str:
        """The name of what outlives the process; "": nothing does."""
        return "" if self._folder is None else self._folder.storage

    def previous(self, identity: Identity, broker: int) -> int:
        """The incarnation whose process has certainly ended; -1: none is known."""
        if self._folder is None:
            return -1
        return self._folder.previous(identity.group, broker, identity.incarnation)

    def keep(self, identity: Identity, broker: int, incarnation: int) -> None:
        """Note the incarnation of this process for the next one."""
        folder = self._folder  # `close` may come from another thread
        if folder is not None:
            topics = identity.incarnation
            newest = Registered(
                cluster=identity.group, broker=broker, topics=topics, incarnation=incarnation
            )
            folder.keep(newest)

    def close(self, has_stopped: bool) -> None:
        """Release the lock; see `Folder.close`."""
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.close(has_stopped)
