"""Files of a data set: which ones there are, and reading them with pread.

The rules of docs/reference/index-format.md ("Which files are the data"). System errors come with the agent's codes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from typing import NamedTuple

from ..errors import AthanorError

_INDEX_FOLDER = ".athanor"
_UNFINISHED = frozenset((".tmp", ".temp", ".part", ".partial", ".crdownload", ".swp", ".bak"))
_NON_DATA = re.compile(
    r"(?i)\.(md|rst|txt|json|yaml|yml|toml|ini|cfg|xml|csv|tsv|html|htm|pdf|png|jpg|svg|py|sh|js|ts|ipynb|log"
    r"|sha1|sha256|sha512|md5|crc|sum|index|lock|model|pbtxt|license)"
)
_NON_DATA_NAMES = re.compile(
    "LICENSE|LICENCE|NOTICE|README|CHANGELOG|AUTHORS|CITATION|MANIFEST|Makefile|Dockerfile|_SUCCESS|_metadata"
)


class Found(NamedTuple):
    """`paths`: relative to `root`, in byte order. `index_dir`: where the index of exactly this set lies."""

    root: str
    index_dir: str
    paths: list[str]


class DataFile:
    """One open file. `version`: (size, mtime in ns) that it must have, else ATH_SHARD_CHANGED."""

    def __init__(self, path: str, version: tuple[int, int] | None = None) -> None:
        self.path = path
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            found = os.fstat(self._fd)
        except OSError as error:
            self.close()
            raise system_error(error, path) from error
        self.size = found.st_size
        self.mtime_ns = found.st_mtime_ns
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise AthanorError(
                "ATH_NOT_A_FILE", "is not a plain file", file=path, remedy="give a file, a folder or a glob"
            )
        if version is not None and (self.size, self.mtime_ns) != version:
            self.close()
            raise AthanorError(
                "ATH_SHARD_CHANGED",
                f"changed since it was indexed: found {self.size} bytes of {self.mtime_ns} ns, expected {version[0]} "
                f"bytes of {version[1]} ns",
                file=path,
                remedy="run `athanor index` again, or put the old file back",
            )

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes. Raises ATH_SHARD_TRUNCATED when the file ends before."""
        parts = []
        left = length
        while left > 0:
            try:
                part = os.pread(self._fd, left, offset + length - left)
            except OSError as error:
                raise system_error(error, self.path, offset) from error
            if not part:
                raise AthanorError(
                    "ATH_SHARD_TRUNCATED",
                    f"shard is shorter than expected: found {length - left} bytes at byte {offset}, expected {length}",
                    file=self.path,
                    byte_offset=offset,
                    remedy="copy the shard again, then run `athanor index`",
                )
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    __del__ = close


def system_error(error: OSError, path: str, byte_offset: int | None = None) -> AthanorError:
    known = {
        errno.ENOENT: ("ATH_NOT_FOUND", "no such file or folder", "check the path and that the file system is mounted"),
        errno.ENOTDIR: ("ATH_NOT_FOUND", "a part of the path is not a folder", "check the path"),
        errno.ELOOP: ("ATH_NOT_FOUND", "too many symbolic links, or a loop of them", "check the links"),
        errno.EACCES: ("ATH_ACCESS_DENIED", "reading it is not allowed for this user", "check owner and mode"),
        errno.EPERM: ("ATH_ACCESS_DENIED", "reading it is not allowed for this user", "check owner and mode"),
        errno.EISDIR: ("ATH_NOT_A_FILE", "is a folder, expected a file", None),
    }
    code, what, remedy = known.get(
        error.errno or 0,
        (
            "ATH_STORAGE_IO",
            f"the file system answered {errno.errorcode.get(error.errno or 0, error.errno)}",
            "check the mount and the node's kernel log",
        ),
    )
    where = error.filename if isinstance(error.filename, str) else path
    return AthanorError(code, what, file=where, byte_offset=byte_offset, remedy=remedy, cause=str(error))


def is_known_non_data(path: str) -> bool:
    name = os.path.basename(path)
    return bool(_NON_DATA_NAMES.fullmatch(name) or _NON_DATA.fullmatch(os.path.splitext(name)[1]))


def path_bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def discover(source: str, index_dir: str | None = None) -> Found:
    """The files that a folder, a file or a glob names. Raises ATH_NO_SHARDS, ATH_NOT_FOUND, ATH_SOURCE_UNSUPPORTED."""
    scheme = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*)://", source)
    if scheme:
        raise AthanorError(
            "ATH_SOURCE_UNSUPPORTED",
            f"{scheme[1]}:// cannot be read yet, only paths of mounted file systems",
            file=source,
            remedy="give a path, or copy the data to a mounted file system",
        )
    path = os.path.abspath(source)
    root, paths = _files(source, path)
    if index_dir is not None:
        folder = os.path.abspath(index_dir)
    elif root == path:
        folder = os.path.join(root, _INDEX_FOLDER)
    else:
        name = hashlib.sha256(path_bytes(os.path.relpath(path, root))).hexdigest()[:16]
        folder = os.path.join(root, _INDEX_FOLDER, "sets", name)
    inside = os.path.relpath(folder, root)
    outside = [name for name in paths if inside == "." or not name.startswith(inside + "/")]
    if not outside:
        raise AthanorError(
            "ATH_NO_SHARDS", "no files found", file=source, remedy="give a folder, file or glob that holds shards"
        )
    return Found(root, folder, outside)


def _files(source: str, path: str) -> tuple[str, list[str]]:
    # A path that exists is never taken for a glob, whatever characters are in its name.
    if os.path.isdir(path):
        return path, [name for name in _names_below(path) if not _is_unfinished(name)]
    if os.path.isfile(path):
        return os.path.dirname(path), [os.path.basename(path)]
    parts = path.split("/")
    first = next((i for i, part in enumerate(parts) if re.search(r"[*?\[{]", part)), None)
    if first is None:
        DataFile(path).close()  # raises: there is no such file
        raise AthanorError("ATH_NOT_A_FILE", "is not a plain file", file=path)
    prefix = "/".join(parts[:first]) or "/"
    glob = "/".join(parts[first:])
    # Only what the glob can match is looked at: a broken link or a forbidden folder beside it is no fault of the set.
    names = _names_below(prefix, glob_pattern(glob), folder_pattern(glob))
    if not names:
        raise AthanorError("ATH_NO_SHARDS", "the glob matches no file", file=source, remedy="check the pattern")
    folders = [os.path.dirname(name) for name in names]
    common = os.path.commonpath(folders) if all(folders) else ""
    root = os.path.normpath(os.path.join(prefix, common))
    return root, names if common == "" else [name[len(common) + 1 :] for name in names]


_ANY = re.compile(".*", re.DOTALL)
_LEADS_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _names_below(folder: str, files: re.Pattern[str] = _ANY, folders: re.Pattern[str] = _ANY) -> list[str]:
    """Plain files that match, in byte order of their paths. Links are followed, hidden names left out."""
    names: list[str] = []
    above: set[tuple[int, int]] = set()  # folders on the way down: a link to one of them would never end

    def walk(relative: str, linked: bool = False) -> None:
        path = os.path.join(folder, relative)
        found = os.stat(path)
        identity = (found.st_dev, found.st_ino)
        if identity in above or (linked and identity in _folders_around(folder)):
            return
        above.add(identity)
        for name in os.listdir(path):
            if name.startswith("."):
                continue
            child = os.path.join(relative, name)
            is_file, is_folder = files.fullmatch(child), folders.fullmatch(child)
            if not is_file and not is_folder:
                continue
            if any("\udc80" <= letter <= "\udcff" for letter in name):
                shown = os.path.join(path, name).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
                raise AthanorError(
                    "ATH_FILE_NAME",
                    "the name is not UTF-8",
                    file=shown,
                    remedy="rename it (convmv), or leave it out by a glob",
                )
            try:
                mode = os.stat(os.path.join(folder, child)).st_mode
            except OSError as error:
                # A link that leads nowhere: a shard that is missing is never passed over in silence.
                if is_file or error.errno not in _LEADS_NOWHERE:
                    raise
                continue
            if stat.S_ISDIR(mode) and is_folder:
                walk(child, os.path.islink(os.path.join(folder, child)))
            elif stat.S_ISREG(mode) and is_file:
                names.append(child)
        above.remove(identity)

    try:
        walk("")
    except OSError as error:
        raise system_error(error, folder) from error
    return sorted(names, key=path_bytes)


def _folders_around(folder: str) -> set[tuple[int, int]]:
    """Those that the folder lies in: a link to one would bring all that is around it."""
    around: set[tuple[int, int]] = set()
    path = os.path.join(folder, "..")
    while (identity := (os.stat(path).st_dev, os.stat(path).st_ino)) not in around:
        around.add(identity)
        path = os.path.join(path, "..")
    return around


def _is_unfinished(path: str) -> bool:
    *folders, name = path.split("/")
    return (
        "_temporary" in folders
        or "_tmp" in folders
        or name.endswith("~")
        or os.path.splitext(name)[1].lower() in _UNFINISHED
    )


def folder_pattern(glob: str) -> re.Pattern[str]:
    """Folders in which, or below which, a match of the glob can lie."""
    folders = []
    parts = glob.split("/")
    for i, part in enumerate(parts):
        above = "/".join(parts[:i])
        # A brace or bracket that reaches over folders (`{a/b,c}`) cannot be cut at the slashes.
        if "**" in part or part.count("{") != part.count("}") or part.count("[") != part.count("]"):
            folders.append(f"{above}/**" if above else "**")
            break
        if i < len(parts) - 1:
            folders.append(f"{above}/{part}" if above else part)
    return re.compile("|".join(glob_pattern(part).pattern for part in folders) or r"(?!)", re.DOTALL)


def glob_pattern(glob: str) -> re.Pattern[str]:
    """`*`, `?`, `[a-z]`, `[!a]`, `{a,b}`, and `**` for any folders. Unclosed brackets are plain characters."""
    pattern = ""
    braces = at = 0
    while at < len(glob):
        char = glob[at]
        if glob.startswith("**/", at):
            pattern += "(?:.*/)?"
            at += 2
        elif glob.startswith("**", at):
            pattern += ".*"
            at += 1
        elif char == "*":
            pattern += "[^/]*"
        elif char == "?":
            pattern += "[^/]"
        elif char == "[" and glob.find("]", at + 2) > 0:
            end = glob.index("]", at + 2)
            inner = re.sub(r"([\\\[&~|])", r"\\\1", glob[at + 1 : end])
            pattern += f"[^/{inner[1:]}]" if inner.startswith("!") else "[" + re.sub(r"^\^", r"\\^", inner) + "]"
            at = end
        elif char == "{" and glob.find("}", at) > 0:
            braces += 1
            pattern += "(?:"
        elif char == "}" and braces > 0:
            braces -= 1
            pattern += ")"
        elif char == "," and braces > 0:
            pattern += "|"
        else:
            pattern += re.escape(char)
        at += 1
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise AthanorError(
            "ATH_SOURCE_UNSUPPORTED",
            f"this glob cannot be understood: {glob}",
            remedy="check its brackets and braces",
            cause=str(error),
        ) from error
