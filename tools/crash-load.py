#!/usr/bin/env python3
"""Work on files until the file system dies, writing down outside it what was promised; afterwards check the promises.

    crash-load.py run DIR LOG [--seed N] [--seconds S]      exit 0 when the file system went away or the time is up
    crash-load.py check DIR LOG                             exit 0 when every promise is kept, 1 otherwise (each broken one is printed)

LOG lies on another file system. A line is written before each step (what may be there from now on) and after each
fsync that returned (what must be there). Every page carries the number of the step that wrote it, so that check can
tell for every page that it is one of the versions written since the last fsync, or that fsync's own, and never a
mixture. Steps: overwrite, append and sparse writes with fsync or fdatasync, truncate, create, safe rewrite
(new file, fsync, rename), unlink, mkdir, link, xattr and mode changes, fsync of the directory, and syncfs.
"""
import argparse, json, os, random, shlex, struct, subprocess, sys, time

PAGE = 4096
MAGIC = 0x4D444653


def page(file, index, step):
    """A page that says where it belongs and who wrote it, all through, so that a torn one is seen."""
    return struct.pack("<IIII", MAGIC, file, index, step) * (PAGE // 16)


def parse(b, file, index):
    """The step that wrote this page; 0 for a hole; an error text for anything else."""
    if not b.strip(b"\0"):
        return 0
    m, f, i, step = struct.unpack_from("<IIII", b)
    if m != MAGIC:
        return "holds garbage (%s...)" % b[:16].hex()
    if (f, i) != (file, index):
        return "holds page %d of file %d" % (i, f)
    if b != page(f, i, step)[:len(b)]:
        return "is a mixture: begins with step %d" % step
    return step


class Load:
    def __init__(self, root, log, seed):
        self.root, self.rnd = root, random.Random(seed)
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self.step = 0
        self.files = {}  # name -> [file number, pages]
        self.numbers = 0

    def note(self, **k):
        os.write(self.log, (json.dumps(k) + "\n").encode())

    def p(self, n):
        return os.path.join(self.root, n)

    def write(self, name, fd, indices):
        self.step += 1
        f = self.files[name]
        self.note(op="write", name=name, file=f[0], pages=indices, step=self.step)
        for i in indices:
            os.pwrite(fd, page(f[0], i, self.step), i * PAGE)
            f[1] = max(f[1], i + 1)

    def sync(self, name, fd):
        (os.fsync if self.rnd.random() < .6 else os.fdatasync)(fd)
        self.note(op="synced", name=name)

    def new(self, name):
        self.numbers += 1
        self.files[name] = [self.numbers, 0]
        self.note(op="create", name=name, file=self.numbers)
        return os.open(self.p(name), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)

    def dirsync(self, d=""):
        fd = os.open(self.p(d) if d else self.root, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        self.note(op="dirsynced", dir=d)

    def sync_all(self):
        r = subprocess.run(shlex.split(self.syncer) or ["sync", "-f", self.root])
        if r.returncode:
            raise OSError("the sync command ended with %d" % r.returncode)

    def work(self, seconds):
        r = self.rnd
        for d in ("d0", "d1", "d2"):
            os.mkdir(self.p(d))
        self.sync_all()
        self.note(op="start")
        end = time.monotonic() + seconds
        n = 0
        while time.monotonic() < end:
            n += 1
            x = r.random()
            names = list(self.files)
            if x < .22 or len(names) < 5:
                name = "%s/f%d" % (r.choice(("d0", "d1", "d2")), n)
                fd = self.new(name)
                self.write(name, fd, list(range(r.choice((1, 1, 2, 5, 30)))))
                if r.random() < .1:
                    self.write(name, fd, [r.choice((900, 1900, 3000))])
                if r.random() < .8:
                    self.sync(name, fd)
                os.close(fd)
            elif x < .72:
                name = r.choice(names)
                fd = os.open(self.p(name), os.O_RDWR)
                pages = max(self.files[name][1], 1)
                for _ in range(r.choice((1, 1, 1, 3))):
                    if r.random() < .6:
                        self.write(name, fd, sorted({r.randrange(min(pages, 60)) for _ in range(r.choice((1, 1, 2, 8)))}))
                    else:
                        self.write(name, fd, [pages + i for i in range(r.choice((1, 2, 12)))])
                if r.random() < .85:
                    self.sync(name, fd)
                os.close(fd)
            elif x < .76:
                name = r.choice(names)
                f = self.files[name]
                pages = r.randrange(f[1] + 1)
                self.step += 1
                self.note(op="truncate", name=name, pages=pages, step=self.step)
                fd = os.open(self.p(name), os.O_RDWR)
                os.ftruncate(fd, pages * PAGE)
                f[1] = pages
                if r.random() < .8:
                    self.sync(name, fd)
                os.close(fd)
            elif x < .86:  # the safe rewrite
                name = r.choice(names)
                tmp = name + ".tmp"
                fd = self.new(tmp)
                self.write(tmp, fd, list(range(r.choice((1, 3, 20)))))
                self.sync(tmp, fd)
                os.close(fd)
                self.note(op="rename", name=tmp, to=name)
                os.rename(self.p(tmp), self.p(name))
                self.files[name] = self.files.pop(tmp)
                if r.random() < .4:
                    self.dirsync(os.path.dirname(name))
            elif x < .93 and len(names) > 12:
                name = r.choice(names)
                self.note(op="unlink", name=name)
                os.unlink(self.p(name))
                del self.files[name]
                if r.random() < .4:
                    self.dirsync(os.path.dirname(name))
            elif x < .97:
                name = r.choice(names)
                v = "%d" % n
                self.note(op="xattr", name=name, value=v)
                os.setxattr(self.p(name), "user.step", v.encode() + b"x" * r.choice((0, 0, 500)))
                fd = os.open(self.p(name), os.O_RDWR)
                os.fsync(fd)
                self.note(op="synced", name=name)
                os.close(fd)
            else:
                self.sync_all()
                self.note(op="allsynced")
        self.note(op="end")


class Lost(Exception):
    pass


class Content:
    """What is promised of one file's content: every page between a floor (last synced) and the newest step."""

    def __init__(self, file):
        self.file, self.written, self.sizes = file, {}, [0]  # page -> [possible steps], sizes since the last sync
        self.xattr = [None]

    def write(self, pages, step):
        for i in pages:
            self.written.setdefault(i, [0]).append(step)
        self.sizes.append(max(self.sizes[-1], max(pages) + 1))

    def truncate(self, pages):
        for i in self.written:
            if i >= pages:
                self.written[i].append(0)
        self.sizes.append(pages)

    def synced(self):
        self.written = {i: v[-1:] for i, v in self.written.items()}
        self.sizes = self.sizes[-1:]
        self.xattr = self.xattr[-1:]

    def check(self, path, problems):
        size = os.path.getsize(path)
        # a size between two of them may be seen: a write of several pages is not one step
        if size % PAGE and size not in [s * PAGE for s in self.sizes] or not min(self.sizes) * PAGE <= size <= max(self.sizes) * PAGE:
            problems.append("%s: size %d, promised pages %s" % (path, size, sorted(set(self.sizes))))
        with open(path, "rb") as f:
            for i in sorted(self.written):
                b = os.pread(f.fileno(), PAGE, i * PAGE)
                got = parse(b, self.file, i)
                may = self.written[i]
                if not b and any(s <= i for s in self.sizes):
                    continue  # the size was cut, or had not grown, by then
                if isinstance(got, str) or got not in may:
                    problems.append("%s: page %d is of step %s, promised %s" % (path, i, got, may))
        try:
            x = os.getxattr(path, "user.step").decode().rstrip("x")
        except OSError:
            x = None
        if x not in self.xattr:
            problems.append("%s: xattr %s, promised %s" % (path, x, self.xattr))


def check(root, log):
    names = {}  # name -> [candidates]: Content or None (absent); the last is the newest
    started = False
    counts = {}
    with open(log) as f:
        for line in f:
            if not line.endswith("\n"):
                break
            e = json.loads(line)
            op, n = e["op"], e.get("name")
            counts[op] = counts.get(op, 0) + 1
            if op == "start":
                started = True
            elif op == "create":
                names.setdefault(n, [None]).append(Content(e["file"]))
            elif op == "write":
                names[n][-1].write(e["pages"], e["step"])
            elif op == "truncate":
                names[n][-1].truncate(e["pages"])
            elif op == "xattr":
                names[n][-1].xattr.append(e["value"])
            elif op == "synced":
                c = names[n][-1]
                c.synced()
                # a name fsynced after its file came to it by rename is not promised by the file's fsync alone,
                # but a file that was created under this name is
                names[n] = [c] if c not in names[n][:-1] and not getattr(c, "renamed", False) else names[n]
            elif op == "rename":
                c = names[n][-1]
                c.renamed = True
                names.setdefault(e["to"], [None]).append(c)
                names[n].append(None)
            elif op == "unlink":
                names[n].append(None)
            elif op == "dirsynced":
                for k in names:
                    if os.path.dirname(k) == e["dir"]:
                        names[k] = names[k][-1:]
                        if names[k][0]:
                            names[k][0].renamed = False
            elif op == "allsynced":
                for k in names:
                    names[k] = names[k][-1:]
                    if names[k][0]:
                        names[k][0].synced()
                        names[k][0].renamed = False
    if not started:
        print("crash-load: it died before it started")
        return 2
    problems, present = [], 0
    seen = {os.path.join(d, f)[len(root):].lstrip("/") for d, _, fs in os.walk(root) for f in fs}
    for n, may in sorted(names.items()):
        path = os.path.join(root, n)
        if n not in seen:
            if None not in may:
                problems.append("%s: is not there, promised %d version(s)" % (n, len(may)))
            continue
        present += 1
        tries = []
        for c in may:
            if c:
                t = []
                c.check(path, t)
                tries.append(t)
        if not tries:
            problems.append("%s: is there, though its removal was synced" % n)
        elif all(tries):
            problems += min(tries, key=len)
    problems += ["%s: nobody made it" % n for n in sorted(seen - names.keys())]
    for p in problems[:30]:
        print("crash-load: BROKEN PROMISE: " + p)
    print("crash-load: %s; %d names, %d present, %d broken promises" % (", ".join("%s %d" % k for k in sorted(counts.items())), len(names), present, len(problems)))
    return 1 if problems else 0


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("cmd", choices=("run", "check"))
    ap.add_argument("dir")
    ap.add_argument("log")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--seconds", type=float, default=60)
    ap.add_argument("--syncer", default="", help="command that syncs the whole file system (default: sync -f DIR)")
    a = ap.parse_args()
    if a.cmd == "check":
        sys.exit(check(a.dir, a.log))
    l = Load(a.dir, a.log, a.seed)
    l.syncer = a.syncer
    try:
        l.work(a.seconds)
    except OSError as e:
        print("crash-load: the file system went away: %s" % e)


if __name__ == "__main__":
    main()
