#!/usr/bin/env python3
"""Make a tree with every kind and size class of file that F2FS tells apart.

    tree-maker.py DIR [--scale small|full] [--seed N] [--skip KIND,...]

Everything is a function of --scale and --seed, so the same tree can be made by two drivers and compared with
manifest.py. What a driver or a volume does not support (project ids without the feature, say) is skipped and
said on stderr; --strict makes it an error, except for project ids (they need a feature of the volume).
Needs root (devices, owners, trusted xattrs). Standard library only: it also runs in the test guest.
"""
import argparse, errno, fcntl, os, random, socket, stat, struct, sys, zlib

PAGE = 4096
BASE = random.Random(0xF2F5).randbytes(PAGE)
GETFLAGS, SETFLAGS = 0x80086601, 0x40086602
FSGETXATTR, FSSETXATTR = 0x801C581F, 0x401C5820
SET_COMPRESS_OPTION = 0x4002F516
COMPR_FL, NOCOMP_FL = 4, 0x400
SYNC_FL, IMMUTABLE_FL, APPEND_FL, NODUMP_FL, NOATIME_FL, DIRSYNC_FL, PROJINHERIT_FL = 8, 16, 32, 64, 128, 0x10000, 0x20000000
NODE, INODE, INODE_XATTR = 1018, 923, 873  # addresses in a direct node, in an inode, in an inode with inline xattrs
KEEP_SIZE, PUNCH, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32


def page(name, index):
    """The page of the file called name: one base pattern, tagged, so that a page out of place is seen (and compresses well)."""
    tag = struct.pack("<II", zlib.crc32(name.encode()), index & 0xFFFFFFFF)
    return tag + BASE[8:2048] + tag + BASE[2056:PAGE - 8] + tag


def content(name, size, start=0):
    return b"".join(page(name, start + i) for i in range((size + PAGE - 1) // PAGE))[:size]


class Maker:
    def __init__(self, root, scale, seed, strict, skip):
        self.root, self.full, self.rnd, self.strict, self.skip = root, scale == "full", random.Random(seed), strict, skip
        self.seq = 0
        self.late = []  # (path, flags): set when everything else is done

    def p(self, name):
        return os.path.join(os.fsencode(self.root), os.fsencode(name))

    def attempt(self, what, f, optional=False):
        try:
            f()
        except OSError as e:
            if self.strict and not optional:
                raise
            print("tree-maker: %s: not made: %s" % (what, e.strerror), file=sys.stderr)

    def dir(self, name, mode=0o755):
        os.mkdir(self.p(name))
        os.chmod(self.p(name), mode)

    def file(self, name, data=b"", mode=0o644):
        with open(self.p(name), "wb") as f:
            f.write(data)
        os.chmod(self.p(name), mode)

    def sized(self, name, size):
        self.file(name, content(name, size))

    def sparse(self, name, pages, size=None):
        fd = os.open(self.p(name), os.O_RDWR | os.O_CREAT, 0o644)
        for i in pages:
            os.pwrite(fd, page(name, i), i * PAGE)
        if size is not None:
            os.ftruncate(fd, size)
        os.close(fd)

    def times(self):
        """Every path gets its own time, with nanoseconds; some before 1970 and after 2038 and 2106."""
        far = [-1, -2**31 - 5, 2**31 + 7, 2**32 + 9, 2**33 + 1]
        n = 0
        root = os.fsencode(self.root)
        for d, ds, fs in os.walk(root, topdown=False):
            for f in sorted(fs) + [None]:
                n += 1
                s = far[n % 101] if n % 101 < len(far) else 1_000_000_000 + n * 7919
                path = d if f is None else os.path.join(d, f)
                os.utime(path, ns=(s * 10**9 + (n * 104729) % 10**9, (s + 3600) * 10**9 + (n * 1299709) % 10**9), follow_symlinks=False)

    # -- the kinds ------------------------------------------------------------------------------------------

    def sizes(self):
        self.dir("sizes")
        inline = 4 * (INODE_XATTR - 1)  # most inline data without extra attributes
        for s in [0, 1, 7, 100, 511, 3400, 3444, 3460, 3464, inline - 1, inline, inline + 1, 4095, 4096, 4097, 8192, 12289, 65536]:
            self.sized("sizes/%d" % s, s)
        edges = [INODE_XATTR - 10, INODE_XATTR - 1, INODE_XATTR, INODE_XATTR + 1, INODE, INODE + 1]
        for n in (edges if self.full else [INODE_XATTR - 1, INODE_XATTR + 1]):
            self.sized("sizes/pages-%d" % n, n * PAGE + (13 if n & 1 else 0))
        if self.full:
            self.sized("sizes/indirect", (INODE_XATTR + 2 * NODE + 40) * PAGE + 1)
            self.sized("sizes/one-direct", (INODE_XATTR + NODE) * PAGE)

    def holes(self):
        self.dir("holes")
        d1, d2 = INODE_XATTR, INODE_XATTR + NODE
        i1 = d2 + NODE
        i2, dd = i1 + NODE * NODE, i1 + 2 * NODE * NODE
        self.sparse("holes/only-hole", [], 1 << 20)
        self.sparse("holes/one-byte-hole", [], 1)
        self.sparse("holes/inline-tail", [], 3000)
        self.sparse("holes/edges", [0, d1 - 1, d1, d2 - 1, d2, i1 - 1, i1, i1 + NODE - 1, i1 + NODE])
        self.sparse("holes/extra-edges", [d1 - 9, d1 - 10, INODE - 1, INODE, INODE + NODE])
        self.sparse("holes/indirect-2", [i2 - 1, i2, i2 + NODE * 3 + 1], (i2 + NODE * 4) * PAGE)
        self.sparse("holes/double-indirect", [5, dd - 1, dd, dd + NODE, dd + NODE * NODE * 2 + 17])
        self.sparse("holes/far", [4_000_000_000_000 // PAGE])
        self.sparse("holes/checkered", range(0, 64 if not self.full else 600, 2), (700 if self.full else 70) * PAGE + 5)
        self.sparse("holes/cut", range(10), 5 * PAGE + 77)  # truncated down, mid-page
        self.sparse("holes/regrown", range(10), 3 * PAGE + 100)
        os.truncate(self.p("holes/regrown"), 8 * PAGE)  # the cut tail reads as zeros

    def fallocate(self):
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        self.dir("fallocate")

        def fa(name, mode, off, n):
            def go():
                fd = os.open(self.p(name), os.O_RDWR | os.O_CREAT, 0o644)
                try:
                    if libc.fallocate(fd, mode, off, n):
                        e = ctypes.get_errno()
                        raise OSError(e, os.strerror(e))
                finally:
                    os.close(fd)
            self.attempt("fallocate mode %d" % mode, go)
        fa("fallocate/grown", 0, 0, 10 * PAGE)
        fa("fallocate/kept-size", KEEP_SIZE, 0, 6 * PAGE)
        self.sparse("fallocate/partly-written", [1, 3])
        fa("fallocate/partly-written", 0, 0, 7 * PAGE + 123)
        for n, mode, off, ln in (("punched", PUNCH | KEEP_SIZE, 2 * PAGE + 10, 4 * PAGE), ("zeroed", ZERO, 3 * PAGE + 7, 5 * PAGE)):
            self.sized("fallocate/" + n, 16 * PAGE + 9)
            fa("fallocate/" + n, mode, off, ln)
        for n, mode, off, ln in (("collapsed", COLLAPSE, 4 * PAGE, 4 * PAGE), ("inserted", INSERT, 2 * PAGE, 3 * PAGE)):
            self.sized("fallocate/" + n, 16 * PAGE + 9)
            fd = os.open(self.p("fallocate/" + n), os.O_RDWR)
            if libc.fallocate(fd, mode, off, ln):  # FUSE in the kernel does not pass these two on: the same content by hand
                b = content("fallocate/" + n, 16 * PAGE + 9)
                os.ftruncate(fd, 0)
                os.pwrite(fd, b[:off], 0)
                os.pwrite(fd, b[off + ln:] if mode == COLLAPSE else b[off:], off if mode == COLLAPSE else off + ln)
            os.close(fd)

    def links(self):
        self.dir("links")
        self.sized("links/one", 5000)
        self.dir("links/d")
        for n in ("links/two", "links/three", "links/d/four"):
            os.link(self.p("links/one"), self.p(n))
        for n, t in (("short", "one"), ("dangling", "no/such/thing"), ("absolute", "/etc/hostname"), ("inline-max", "x/" * 1700), ("long", "y/" * 2040 + "z" * 14)):
            os.symlink(t, self.p("links/" + n))
        os.symlink(os.fsencode("t\u00e9l\u00e9") + b"\xff\xfe", self.p("links/bytes"))
        os.lchown(self.p("links/short"), 33, 44)

    def special(self):
        self.dir("special")
        os.mkfifo(self.p("special/fifo"), 0o640)
        s = socket.socket(socket.AF_UNIX)
        here = os.getcwd()
        os.chdir(self.p("special"))
        s.bind("socket")
        os.chdir(here)
        s.close()
        for n, k, ma, mi in (("null", stat.S_IFCHR, 1, 3), ("sda", stat.S_IFBLK, 8, 0), ("big-char", stat.S_IFCHR, 240, 65537), ("big-block", stat.S_IFBLK, 259, 300000)):
            os.mknod(self.p("special/" + n), k | 0o660, os.makedev(ma, mi))

    def modes(self):
        self.dir("modes")
        for m in (0, 0o400, 0o644, 0o755, 0o777, 0o4755, 0o2755, 0o6711, 0o1777, 0o7777):
            self.file("modes/f%04o" % m, b"mode")
            os.chown(self.p("modes/f%04o" % m), 1000 + m, 70000 + m)
            os.chmod(self.p("modes/f%04o" % m), m)
            self.dir("modes/d%04o" % m, m)
        os.chown(self.p("modes/f0644"), 2**32 - 2, 2**32 - 3)
        self.dir("modes/setgid-parent", 0o755)
        os.chown(self.p("modes/setgid-parent"), 0, 4242)
        os.chmod(self.p("modes/setgid-parent"), 0o2775)
        self.dir("modes/setgid-parent/child")  # inherits the group and the bit

    def directories(self):
        self.dir("dirs")
        self.dir("dirs/empty")
        deep = "dirs/deep"
        self.dir(deep)
        for i in range(20):
            deep += "/level-%02d" % i
            self.dir(deep)
        self.file(deep + "/bottom", b"bottom")
        self.dir("dirs/names")
        for n in ["a", "." * 3, " ", "space in name", "new\nline", "tab\t", "back\\slash", "quote'\"", "-dash", "%percent", "n" * 8, "n" * 9, "n" * 16, "n" * 255,
                  "\u00fcml\u00e4ut", "\u4e2d\u6587\u5b57", "CaseName", "casename"]:
            self.file(os.path.join(b"dirs/names", os.fsencode(n)), n.encode())
        for n in (b"\xff\xfe\xfd", b"\x80", b"caf\xe9", b"\x01\x02control\x7f", b"\xff" * 255):
            self.file(b"dirs/names/" + n, n)
        self.dir("dirs/inline-full")  # an inline directory holds 182 slots
        for i in range(90):
            self.file("dirs/inline-full/e%02d" % i)
        self.dir("dirs/just-converted")
        for i in range(200):
            os.link(self.p("dirs/inline-full/e00"), self.p("dirs/just-converted/link-%03d" % i))
        n = 10_000 if self.full else 1200
        self.dir("dirs/many")
        self.dir("dirs/many-files" if self.full else "dirs/some-files")
        self.file("dirs/many/first", b"first")
        for i in range(n):
            os.link(self.p("dirs/many/first"), self.p("dirs/many/entry-%05d-%s" % (i, "x" * self.rnd.choice((0, 0, 0, 5, 40, 200)))))
        for i in range(n if self.full else 60):
            self.file(("dirs/many-files/%05d" if self.full else "dirs/some-files/%05d") % i, b"%d" % i if i % 3 else b"")
        self.dir("dirs/emptied")  # entries made and removed again leave free slots behind
        for i in range(700):
            os.link(self.p("dirs/many/first"), self.p("dirs/emptied/gone-%d" % i))
        for i in range(700):
            if i % 97:
                os.unlink(self.p("dirs/emptied/gone-%d" % i))
        os.rename(self.p("dirs/emptied/gone-97"), self.p("dirs/emptied/renamed"))
        self.dir("dirs/moved-from")
        self.file("dirs/moved-from/inside", b"inside")
        os.rename(self.p("dirs/moved-from"), self.p("dirs/deep/moved-to"))  # .. changes

    def xattrs(self):
        self.dir("xattr")

        def put(path, name, value, optional=False):
            self.attempt("xattr %s" % name, lambda: os.setxattr(self.p(path), name, value, follow_symlinks=False), optional)
        val = lambda k, n: content("xattr-" + k, n)
        for n in ("one", "inline-full", "overflow", "big", "all-kinds", "removed", "replaced", "empty-value", "with-inline-data"):
            self.file("xattr/" + n, b"data of " + n.encode())
        put("xattr/one", "user.a", b"1")
        put("xattr/inline-full", "user.full", val("full", 150))
        for i in range(8):
            put("xattr/overflow", "user.n%d" % i, val("o%d" % i, 100 + i))
        put("xattr/big", "user.big", val("big", 3500))
        put("xattr/big", "user.small", b"small")
        for ns in ("user.u", "trusted.t", "security.s"):
            put("xattr/all-kinds", ns, ns.encode())
        put("xattr/removed", "user.keep", b"keep")
        put("xattr/removed", "user.drop", val("drop", 300))
        self.attempt("removexattr", lambda: os.removexattr(self.p("xattr/removed"), "user.drop"))
        put("xattr/replaced", "user.r", b"short")
        put("xattr/replaced", "user.r", val("r", 400))
        put("xattr/empty-value", "user.nothing", b"")
        put("xattr/with-inline-data", "user." + "n" * 200, b"long name")
        self.dir("xattr/dir")
        put("xattr/dir", "user.on-dir", b"yes")
        put("xattr/dir", "trusted.on-dir", val("dir", 900))
        os.symlink("one", self.p("xattr/link"))
        put("xattr/link", "trusted.on-link", b"link")
        # security.capability: cap_net_raw, version 2
        put("xattr/one", "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0))

    def acls(self):
        self.dir("acl")
        e = lambda tag, perm, i=0xFFFFFFFF: struct.pack("<HHI", tag, perm, i)
        small = struct.pack("<I", 2) + e(1, 7) + e(2, 5, 1001) + e(4, 4) + e(0x10, 5) + e(0x20, 0)
        large = struct.pack("<I", 2) + e(1, 6) + b"".join(e(2, 4, 2000 + i) for i in range(40)) + e(4, 4) + e(8, 6, 3000) + e(0x10, 6) + e(0x20, 4)
        self.file("acl/file", b"acl")
        self.file("acl/many", b"acl")
        self.dir("acl/dir")
        for path, kind, v in (("acl/file", "access", small), ("acl/many", "access", large), ("acl/dir", "access", small), ("acl/dir", "default", small)):
            self.attempt("ACL", lambda: os.setxattr(self.p(path), "system.posix_acl_" + kind, v))
        self.file("acl/dir/inherits", b"inherits", 0o644)
        self.dir("acl/dir/sub")

    def flags(self):
        self.dir("flags")
        for n, fl in (("immutable", IMMUTABLE_FL), ("append", APPEND_FL), ("nodump", NODUMP_FL), ("noatime", NOATIME_FL), ("sync", SYNC_FL), ("two", NODUMP_FL | NOATIME_FL)):
            self.sized("flags/" + n, 100)
            self.late.append(("flags/" + n, fl))
        self.dir("flags/dirsync")
        self.late.append(("flags/dirsync", DIRSYNC_FL))

    def set_flags(self):
        for name, fl in self.late:
            def go():
                fd = os.open(self.p(name), os.O_RDONLY)
                try:
                    fcntl.ioctl(fd, SETFLAGS, struct.pack("l", fl))
                finally:
                    os.close(fd)
            self.attempt("flags of " + name, go)

    def projects(self):
        self.dir("project")
        self.dir("project/dir")

        def project(path, n, inherit):
            fd = os.open(self.p(path), os.O_RDONLY)
            try:
                b = bytearray(fcntl.ioctl(fd, FSGETXATTR, bytes(28)))
                struct.pack_into("<I", b, 12, n)
                if inherit:
                    struct.pack_into("<I", b, 0, struct.unpack_from("<I", b, 0)[0] | 0x200)
                fcntl.ioctl(fd, FSSETXATTR, bytes(b))
            finally:
                os.close(fd)
        self.file("project/file", b"p")
        self.attempt("project id", lambda: project("project/file", 777, False), True)
        self.attempt("project id", lambda: project("project/dir", 4000000000, True), True)
        self.file("project/dir/inherits", b"p")
        self.dir("project/dir/sub")

    def rewritten(self):
        """Files whose blocks are scattered over several logs: overwritten, appended in turns, extended from inline."""
        self.dir("rewritten")
        fds = []
        for n in ("a", "b", "c"):
            fds.append((n, os.open(self.p("rewritten/" + n), os.O_RDWR | os.O_CREAT, 0o644)))
        for i in range(40):
            for n, fd in fds:
                os.pwrite(fd, page("rw" + n, i), i * PAGE)
            if i % 8 == 7:
                for n, fd in fds:
                    os.fsync(fd)
        for _ in range(60):
            n, fd = self.rnd.choice(fds)
            i = self.rnd.randrange(40)
            os.pwrite(fd, page("rw2" + n, i), i * PAGE + self.rnd.randrange(0, 4096))
        for n, fd in fds:
            os.close(fd)
        self.sized("rewritten/was-inline", 100)
        with open(self.p("rewritten/was-inline"), "r+b") as f:
            f.seek(9000)
            f.write(b"beyond the inline area")


    def compressed(self):
        """Files of compressed clusters (by chattr, from the directory, by extension 'txt'), around the edges of clusters and nodes, rewritten in part."""
        def chattr(name, fl):
            fd = os.open(self.p(name), os.O_RDONLY)
            try:
                fcntl.ioctl(fd, SETFLAGS, struct.pack("l", fl))
            finally:
                os.close(fd)

        def change(name, *steps):
            fd = os.open(self.p(name), os.O_RDWR)
            try:
                os.fsync(fd)
                for at, data in steps:
                    os.ftruncate(fd, at) if data is None else os.pwrite(fd, data, at)
                    os.fsync(fd)
            finally:
                os.close(fd)
        self.dir("compressed")
        for d, fl in (("flag", COMPR_FL), ("not", NOCOMP_FL), ("by-name", 0)):
            self.dir("compressed/" + d)
            if fl:
                chattr("compressed/" + d, fl)
        sizes = [0, 1, PAGE, 16383, 16384, 16385, 5 * 16384, 100000, 880 * PAGE + 5]
        for n in sizes + ([864 * PAGE, (872 + 1016 + 40) * PAGE, 12 << 20] if self.full else []):
            self.sized("compressed/flag/%d" % n, n)
        self.sized("compressed/not/plain", 70000)
        self.sized("compressed/by-name/some.txt", 300000)
        self.sized("compressed/by-name/some.bin", 70000)
        self.file("compressed/by-name/by-flag")
        chattr("compressed/by-name/by-flag", COMPR_FL)
        with open(self.p("compressed/by-name/by-flag"), "wb") as f:
            f.write(content("by-flag", 90000))
        for algorithm in range(4):
            for log in (2, 5):
                name = "compressed/flag/algorithm-%d-%d" % (algorithm, log)
                fd = os.open(self.p(name), os.O_RDWR | os.O_CREAT, 0o644)
                try:
                    fcntl.ioctl(fd, SET_COMPRESS_OPTION, bytes([algorithm, log]))
                    os.write(fd, content("algorithm", 50000) + bytes(150000) + b"".join(b"%d " % (i * i) for i in range(4000)) + bytes(100000))
                finally:
                    os.close(fd)
        noise = self.rnd.randbytes(1 << 18 if self.full else 1 << 15)
        self.file("compressed/flag/noise", noise)
        self.file("compressed/flag/mixed", b"".join(noise[i:i + 16384] if i % 32768 else content("mixed", 16384, i // PAGE) for i in range(0, len(noise), 16384)))
        self.file("compressed/flag/half", b"".join(noise[i:i + 8192] + bytes(8192) for i in range(0, len(noise), 8192)))
        self.file("compressed/flag/zeros", bytes(200000))
        for n in ("patched", "cut", "cut-and-grown", "appended", "to-noise", "sparse"):
            self.file("compressed/flag/" + n, content("change", 200000))
        change("compressed/flag/patched", (5, b"x"), (50000, content("new", 9000)), (16384 * 7, noise[:16384]))
        change("compressed/flag/cut", (100001, None))
        change("compressed/flag/cut-and-grown", (20000, None), (150000, None), (140000, b"end"))
        change("compressed/flag/appended", *((200000 + i * 3000, content("a", 3000, i)) for i in range(20)))
        change("compressed/flag/to-noise", (0, noise[:200000]))
        change("compressed/flag/sparse", (0, None), (PAGE * 3, b"a"), (PAGE * 900, content("s", 40000)), (PAGE * 3000, b"z"))


    def recompressed(self):
        """Changes parts of what compressed() made, by another driver say."""
        noise = random.Random(77).randbytes(1 << 16)
        for n, name in enumerate(sorted(os.listdir(self.p("compressed/flag")))):
            path = os.path.join(self.p("compressed/flag"), name)
            size = os.path.getsize(path)
            fd = os.open(path, os.O_RDWR)
            try:
                os.pwrite(fd, b"changed", size // 2)
                if n % 3 == 0:
                    os.ftruncate(fd, size // 3)
                elif n % 3 == 1:
                    os.pwrite(fd, content("re", 70000) + noise[:20000], size // 4)
                if n % 2:
                    os.fsync(fd)
            finally:
                os.close(fd)


OPTIONAL = ["compressed", "recompressed"]  # need a volume with the feature; made where --only names them
KINDS = "sizes holes fallocate links special modes directories xattrs acls flags projects rewritten".split()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("dir")
    ap.add_argument("--scale", choices=("small", "full"), default="full", help="small keeps the image compressible to a few dozen KiB (default %(default)s)")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--strict", action="store_true", help="fail on anything that is not supported")
    ap.add_argument("--only", default="", help="comma-separated kinds out of: " + " ".join(KINDS + OPTIONAL))
    ap.add_argument("--skip", default="", help="comma-separated kinds to leave out")
    a = ap.parse_args()
    os.umask(0o022)
    m = Maker(a.dir, a.scale, a.seed, a.strict, a.skip.split(","))
    for k in KINDS + OPTIONAL:
        if k not in a.skip.split(",") and (k in a.only.split(",") if a.only else k not in OPTIONAL):
            getattr(m, k)()
    m.times()
    m.set_flags()


if __name__ == "__main__":
    main()
