#!/usr/bin/env python3
"""Write down everything about a tree that a file system must keep, or compare two such lists.

    manifest.py make DIR [--out FILE] [--no-dir-times]
    manifest.py compare A B [--ignore FIELD,...] [--ignore-dir FIELD,...] [--limit N]       exit 0 equal, 1 different

One JSON object a line, one line a path, sorted by the path's bytes. Fields:
  path    relative; bytes outside printable ASCII, and '%', as %XX; "." is the root
  type    file dir symlink fifo socket char block
  mode    permission bits, octal string          uid gid nlink size
  ino     inode number (not for the root: FUSE calls every root 1)
  blocks  st_blocks: 512-byte units
  atime mtime ctime btime   "seconds.nanoseconds"; btime only where the driver tells it
  sha256  files: over (page number as u64 LE, page) of each 4 KiB page that is not all zeros, the last one padded with zeros
  data    files: [[offset, length], ...] by SEEK_DATA/SEEK_HOLE
  target  symlinks, escaped like path            rdev  devices: [major, minor]
  xattr   {name: hex}, ACLs included (system.posix_acl_*)
  flags   files and dirs: chattr flags (FS_IOC_GETFLAGS)   project  project id (FS_IOC_FSGETXATTR)
Run it on a mount with noatime, after a sync. Standard library only: it also runs in the test guest.
"""
import argparse, ctypes, fcntl, hashlib, json, os, stat, struct, sys

PAGE, ZERO = 4096, bytes(4096)
READ_ALL = 64 << 20  # files up to this size are read whole, holes included
KIND = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFCHR: "char", stat.S_IFBLK: "block"}
FLAGS = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x400 | 0x10000 | 0x20000000  # the flags a user sets; the rest tells the layout


def escape(b):
    return "".join(chr(c) if 32 <= c < 127 and c != 37 else "%%%02X" % c for c in b)


def ns(v):
    return "%d.%09d" % (v // 10**9, v % 10**9)


libc = ctypes.CDLL(None, use_errno=True)


def btime(path):
    """Birth time by statx, or None."""
    buf = ctypes.create_string_buffer(256)
    if libc.statx(-100, ctypes.c_char_p(path), 0x100, 0x800, buf) or not struct.unpack_from("<I", buf, 0)[0] & 0x800:
        return None
    s, n = struct.unpack_from("<qI", buf, 80)
    return "%d.%09d" % (s, n)


def data_extents(fd, size):
    out, pos = [], 0
    while pos < size:
        try:
            a = os.lseek(fd, pos, os.SEEK_DATA)
        except OSError:  # ENXIO: no data up to the end
            break
        pos = os.lseek(fd, a, os.SEEK_HOLE)
        if pos <= a:
            raise SystemExit("manifest: SEEK_HOLE(%d) answered %d: no progress" % (a, pos))
        out.append([a, min(pos, size) - a])
    return out


def digest(fd, size, extents):
    h = hashlib.sha256()
    for a, n in [[0, size]] if size <= READ_ALL else extents:
        start, end = a // PAGE * PAGE, a + n
        while start < end:
            b = os.pread(fd, min(1 << 20, end - start), start)
            if not b:
                raise SystemExit("manifest: read at %d of a file of %d bytes gave nothing" % (start, size))
            if len(b) % PAGE and start + len(b) < size:
                b = b[:len(b) // PAGE * PAGE] or b + os.pread(fd, PAGE - len(b), start + len(b))
            for i in range(0, len(b), PAGE):
                p = b[i:i + PAGE].ljust(PAGE, b"\0")
                if p != ZERO:
                    h.update(struct.pack("<Q", (start + i) // PAGE))
                    h.update(p)
            start += len(b)
    return h.hexdigest()


def attributes(fd):
    d = {}
    try:
        d["flags"] = struct.unpack("<I", fcntl.ioctl(fd, 0x80086601, bytes(8))[:4])[0] & FLAGS
    except OSError:
        pass
    try:
        d["project"] = struct.unpack_from("<I", fcntl.ioctl(fd, 0x801C581F, bytes(28)), 12)[0]
    except OSError:
        pass
    return d


def entry(root, rel, dir_times):
    path = os.path.join(root, rel) if rel != b"." else root
    s = os.lstat(path)
    k = KIND[stat.S_IFMT(s.st_mode)]
    e = {"path": escape(rel), "type": k, "mode": "%04o" % stat.S_IMODE(s.st_mode), "uid": s.st_uid, "gid": s.st_gid, "nlink": s.st_nlink, "size": s.st_size,
         "ino": s.st_ino, "blocks": s.st_blocks, "atime": ns(s.st_atime_ns), "mtime": ns(s.st_mtime_ns), "ctime": ns(s.st_ctime_ns)}
    b = btime(path)
    if b:
        e["btime"] = b
    if rel == b".":
        del e["ino"]
    if k == "dir" and not dir_times:
        for t in ("atime", "mtime", "ctime"):
            del e[t]
    names = None
    if k in ("char", "block"):
        e["rdev"] = [os.major(s.st_rdev), os.minor(s.st_rdev)]
    elif k == "symlink":
        e["target"] = escape(os.readlink(path))
    elif k in ("file", "dir"):
        fd = os.open(path, os.O_RDONLY | os.O_NOATIME | os.O_NOFOLLOW)
        try:
            e.update(attributes(fd))
            if k == "file":
                e["data"] = data_extents(fd, s.st_size)
                e["sha256"] = digest(fd, s.st_size, e["data"])
            else:
                names = sorted(os.fsencode(n) for n in os.listdir(fd))
                if len(names) != len(set(names)):
                    raise SystemExit("manifest: %s lists a name twice" % e["path"])
        finally:
            os.close(fd)
    try:
        x = {n: os.getxattr(path, n, follow_symlinks=False).hex() for n in sorted(os.listxattr(path, follow_symlinks=False))}
        if x:
            e["xattr"] = x
    except OSError as err:
        if k not in ("symlink", "fifo", "socket", "char", "block"):
            raise SystemExit("manifest: xattrs of %s: %s" % (e["path"], err.strerror))
    return e, names


def make(root, dir_times=True):
    root = os.fsencode(root)
    todo, out = [b"."], []
    while todo:
        rel = todo.pop()
        e, names = entry(root, rel, dir_times)
        out.append((rel, e))
        todo += [n if rel == b"." else rel + b"/" + n for n in names or []]
    return [e for _, e in sorted(out, key=lambda x: x[0])]


def load(path):
    if path.endswith(".zst"):
        import subprocess
        text = subprocess.run(["zstd", "-dqc", path], check=True, stdout=subprocess.PIPE).stdout
    else:
        text = open(path, "rb").read()
    return {e["path"]: e for e in map(json.loads, text.splitlines())}


def differences(a, b, ignore=(), ignore_dir=()):
    """Each difference between two loaded manifests as one sentence."""
    for p in sorted(a.keys() | b.keys()):
        x, y = a.get(p), b.get(p)
        if x is None or y is None:
            yield "%s: only in %s" % (p, "B" if x is None else "A")
            continue
        for f in sorted(x.keys() | y.keys()):
            if f in ignore or (x["type"] == "dir" and f in ignore_dir):
                continue
            if x.get(f) != y.get(f):
                yield "%s: %s: A %s, B %s" % (p, f, *(("absent" if v.get(f) is None else json.dumps(v[f])[:200]) for v in (x, y)))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = ap.add_subparsers(dest="cmd", required=True)
    m = sub.add_parser("make")
    m.add_argument("dir")
    m.add_argument("--out", help="default: stdout")
    m.add_argument("--no-dir-times", action="store_true", help="leave out atime, mtime, ctime of directories (recovery changes them)")
    c = sub.add_parser("compare")
    c.add_argument("a")
    c.add_argument("b")
    c.add_argument("--ignore", default="", help="fields not compared")
    c.add_argument("--ignore-dir", default="", help="fields not compared for directories")
    c.add_argument("--limit", type=int, default=40, help="most differences printed (default %(default)s)")
    a = ap.parse_args()
    if a.cmd == "make":
        text = "".join(json.dumps(e, separators=(",", ":")) + "\n" for e in make(a.dir, not a.no_dir_times))
        if a.out:
            with open(a.out, "w") as f:
                f.write(text)
        else:
            sys.stdout.write(text)
        return 0
    x, y = load(a.a), load(a.b)
    d = list(differences(x, y, a.ignore.split(","), a.ignore_dir.split(",")))
    for l in d[:a.limit]:
        print(l)
    if len(d) > a.limit:
        print("... and %d more" % (len(d) - a.limit))
    print("manifest: %d paths, %d differences" % (len(x.keys() | y.keys()), len(d)))
    return 1 if d else 0


if __name__ == "__main__":
    sys.exit(main())
