"""What the tools share: scratch space, loop devices, mounts of every kind compared, and their clean-up.

A Session undoes everything it did when it ends, also on SIGINT and SIGTERM: mounts, loop devices, scratch files.
Standard library only. The medfs binary is --medfs, else $MEDFS, else target/release/medfs or target/debug/medfs.
"""
import argparse, contextlib, hashlib, json, os, re, shutil, signal, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "medfs-tools")
PEER = os.path.join(HERE, "kernel-peer", "kernel-peer")
UUID = "6b65726e-656c-4070-8565-722d6b706565"
ENV = dict(os.environ, PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
# Of daemons that are to be killed: over io_uring a kill in the middle of a writeback can wedge the kernel (README of crates/fuse).
KILLABLE = "transport=dev"
ALL_FEATURES = "extra_attr,project_quota,inode_checksum,flexible_inline_xattr,quota,inode_crtime,lost_found,sb_checksum"


def die(msg):
    sys.exit("%s: %s" % (os.path.basename(sys.argv[0]), msg))


def say(*a):
    print(*a, flush=True)


def run(cmd, check=True, **kw):
    """The command's output; a failure ends the tool with the output."""
    r = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=ENV, **kw)
    if check and r.returncode:
        die("%s: exit %d\n%s" % (" ".join(map(str, cmd)), r.returncode, r.stdout[-3000:]))
    return r.stdout if check else r


def need(*programs):
    for p in programs:
        if not shutil.which(p, path=ENV["PATH"]):
            die("%s is not installed" % p)


def need_root():
    if os.geteuid():
        die("needs root (loop devices and mounts)")


def parse_size(s):
    m = re.fullmatch(r"(\d+)([KMGT]?)(i?B)?", s, re.I)
    if not m:
        raise argparse.ArgumentTypeError("bad size %r: say 512M or 32G" % s)
    return int(m[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[m[2].upper()]


def parser(doc):
    ap = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--medfs", metavar="BINARY", help="the medfs command (default: $MEDFS, target/release/medfs, target/debug/medfs)")
    ap.add_argument("--scratch", metavar="DIR", help="where images and mount points go (default: $TMPDIR or /tmp)")
    return ap


def find_medfs(a):
    for p in [a.medfs, os.environ.get("MEDFS")]:
        if p:
            return os.path.realpath(p) if os.access(p, os.X_OK) else die("no such program: " + p)
    for p in ("release", "debug"):
        p = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), p, "medfs")
        if os.access(p, os.X_OK):
            return p
    die("no medfs binary: build it (cargo build --release -p medfs-cli) or give --medfs")


def deltas_flag(ap):
    ap.add_argument("--deltas", action="store_true", help="on volumes of medfs mkfs, which hold deltas; fsck.f2fs then sees an exported copy")


def mounted(path):
    path = os.path.realpath(path)
    with open("/proc/self/mountinfo") as f:
        return any(l.split()[4].encode().decode("unicode_escape") == path for l in f)


def fsck(image):
    """Run fsck.f2fs, changing nothing; the list of its complaints (empty: nothing is wrong)."""
    out = run(["fsck.f2fs", "--dry-run", image], check=False).stdout.splitlines()
    # Quotas are left to fsck.f2fs, which is told so; its dry run then allots a segment to the quota files and reports that segment's type.
    if any("quota_need_fsck" in l for l in out):
        out = [l for l in out if "(check_sit_types" not in l]
    bad = [l for l in out if re.search(r"\[Fail\]|\[FAIL\]|\[ASSERT\]|\[FIX\]|\bError\b|Can't find a valid", l)]
    if sum("[Ok..]" in l for l in out) < 8:
        bad.append("fsck.f2fs did not get through its checks: " + " | ".join(out[-3:]))
    return bad


class Mount:
    """A mounted file system of some kind. umount() is clean; kill() is SIGKILL of a FUSE daemon, and takes the dead mount away."""

    def __init__(self, session, kind, source, dir, process=None, log=None):
        self.session, self.kind, self.source, self.dir, self.process, self.log = session, kind, source, dir, process, log
        self.alive = True

    def sync(self):
        """Everything written so far is on the device, in fact: sync(2) does not reach a plain FUSE daemon."""
        if self.kind == "medfs":
            run([self.session.medfs, "sync", self.dir])
        else:
            run(["sync", "-f", self.dir])

    def rss_kib(self):
        with open("/proc/%d/status" % self.process.pid) as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1])

    def umount(self):
        if not self.alive:
            return
        if self.kind == "medfs":
            r = run([self.session.medfs, "umount", self.dir], check=False)
            if r.returncode:
                self.alive = False
                self.kill()
                die("medfs umount: %s" % r.stdout)
        else:
            for _ in range(20):
                r = run(["umount", self.dir], check=False)
                if r.returncode == 0:
                    break
                time.sleep(0.25)
            else:
                die("umount %s: %s" % (self.dir, r.stdout))
        self.alive = False
        self._reap(60)

    def _reap(self, timeout):
        if self.process:
            try:
                rc = self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                die("the %s daemon did not end within %d s of its unmount" % (self.kind, timeout))
            if rc and self.kind == "medfs":
                die("medfs ended with exit code %d: %s" % (rc, self.messages()))

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        run(["umount", "-l", self.dir], check=False)
        self.alive = False

    def messages(self):
        try:
            with open(self.log, errors="replace") as f:
                return f.read()[-2000:]
        except (OSError, TypeError):
            return ""


class Session:
    def __init__(self, a=None, medfs=True):
        self.scratch = getattr(a, "scratch", None)
        self.medfs = find_medfs(a) if medfs else None
        self.deltas, self.plain = getattr(a, "deltas", False), getattr(a, "plain", False)
        self.always = ""  # options of every medfs mount
        self.undo = contextlib.ExitStack()
        self.count = 0

    def __enter__(self):
        for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(s, lambda n, _: sys.exit(128 + n))
        self.dir = tempfile.mkdtemp(prefix="medfs-%s." % os.path.basename(sys.argv[0]), dir=self.scratch)
        self.undo.callback(shutil.rmtree, self.dir, ignore_errors=True)
        return self

    def __exit__(self, *exc):
        for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(s, signal.SIG_IGN)
        self.undo.close()

    def path(self, name):
        return os.path.join(self.dir, name)

    def image(self, name, size):
        p = self.path(name)
        with open(p, "wb") as f:
            f.truncate(size)
        return p

    def mkfs(self, kind, target, opts=()):
        """kind: medfs or f2fs (made by mkfs.f2fs, so that both are judged on one layout, unless deltas are wanted), ext4, fuse2fs."""
        if kind == "medfs" and (self.deltas or self.plain):
            run([self.medfs, "mkfs", "--quiet", *(["--plain"] if self.plain else []), target])
        elif kind in ("medfs", "f2fs"):
            run(["mkfs.f2fs", "-f", "-q", "-r", "-U", UUID, *opts, target])
        else:
            run(["mkfs.ext4", "-q", "-F", *opts, target])

    def fsck(self, image):
        """What fsck.f2fs says against a volume; of one with deltas medfs fsck is asked first, and then fsck.f2fs about a plain copy."""
        if not self.deltas:
            return fsck(image)
        r = run([self.medfs, "fsck", image], check=False)
        if r.returncode:
            return ["medfs fsck: exit %d: %s" % (r.returncode, " | ".join(r.stdout.splitlines()[-5:]))]
        plain = self.path("plain")
        run(["cp", "--sparse=always", image, plain])
        run([self.medfs, "export", plain])
        return fsck(plain)

    def loop(self, image):
        dev = run(["losetup", "--find", "--show", image]).strip()
        self.undo.callback(self.detach, dev, image)
        run(["blockdev", "--setrw", dev])  # a read-only mark outlives the device's former user
        return dev

    @staticmethod
    def detach(dev, image):
        """Let go of a loop device, if it still is the image's: the number may be another's by now."""
        try:
            with open("/sys/block/%s/loop/backing_file" % os.path.basename(dev)) as f:
                if f.read().strip().removesuffix(" (deleted)") == image:
                    run(["losetup", "--detach", dev], check=False)
        except OSError:
            pass

    def mount(self, kind, source, opts="", cpu=None):
        """kind: medfs, fuse2fs, bindfs, passthrough_ll, or a kernel file system. cpu pins a FUSE daemon."""
        self.count += 1
        d = self.path("mnt%d" % self.count)
        os.mkdir(d)
        pin = ["taskset", "-c", str(cpu)] if cpu is not None else []
        o = ["-o", opts] if opts else []
        if kind == "medfs":
            cmd = [*pin, self.medfs, "mount", "--foreground", "-o", ",".join(filter(None, ["allow_other", self.always, opts])), source, d]
        elif kind == "fuse2fs":
            cmd = [*pin, "fuse2fs", source, d, "-f", "-o", ",".join(filter(None, ["fakeroot", "allow_other", opts]))]
        elif kind == "passthrough_ll":
            cmd = [*pin, self.passthrough, "-f", "-o", "source=%s,cache=never" % source, d]
        elif kind == "bindfs":
            cmd = [*pin, "bindfs", "-f", "--multithreaded", *o, source, d]
        else:
            run(["mount", "-t", kind, *o, source, d])
            m = Mount(self, kind, source, d)
            self.undo.callback(self._end, m)
            return m
        log = self.path("mnt%d.log" % self.count)
        with open(log, "w") as f:
            p = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=f, stderr=f, env=ENV, start_new_session=True)
        m = Mount(self, kind, source, d, p, log)
        self.undo.callback(self._end, m)
        end = time.monotonic() + 120
        while not mounted(d):
            if p.poll() is not None:
                die("%s: exit %d: %s" % (" ".join(cmd), p.returncode, m.messages()))
            if time.monotonic() > end:
                die("%s: not mounted after 120 s: %s" % (" ".join(cmd), m.messages()))
            time.sleep(0.005)
        return m

    @staticmethod
    def _end(m):
        """The last resort, when a tool ends without its own umount."""
        if m.alive:
            run(["umount", m.dir], check=False) if m.process is None or m.process.poll() is None else None
            if mounted(m.dir):
                run(["umount", "-l", m.dir], check=False)
        if m.process and m.process.poll() is None:
            try:
                m.process.wait(20)
            except subprocess.TimeoutExpired:
                m.process.kill()
                m.process.wait()


def device_writes(dev):
    """Bytes written to a block device since it was set up, and flushes, by the kernel's own count."""
    with open("/sys/block/%s/stat" % os.path.basename(dev)) as f:
        v = list(map(int, f.read().split()))
    return v[6] * 512, (v[15] if len(v) > 15 else 0)


def kernel_peer(script, image=None, keep=None, report=None, extra=(), args=(), fs="f2fs"):
    """Run kernel-peer; its exit code. script is a file, or the text of a shell script."""
    with tempfile.TemporaryDirectory(prefix="medfs-peer.") as t:
        if not os.path.isfile(script):
            w = os.path.join(t, "workload")
            with open(w, "w") as f:
                f.write("#!/bin/bash\n" + script + "\n")
            script = w
        cmd = [PEER, "--fs", fs, "--workload", script, "--json", report or os.path.join(t, "json"), "--quiet", *args]
        for flag, v in (("--image", image), ("--keep", keep)):
            if v:
                cmd += [flag, v]
        for e in extra:
            cmd += ["--extra", e]
        r = run(cmd, check=False)
        if r.returncode:
            with contextlib.suppress(OSError, ValueError):
                j = json.load(open(report or os.path.join(t, "json")))
                r.stdout += json.dumps({k: j.get(k) for k in ("status", "exit_code", "mount_err", "stdout_tail", "stderr_tail", "console_tail")}, indent=1)
        return r


def cached(name, inputs, make):
    """The path of a cached file called name made by make(path), remade when inputs (files and strings) change."""
    h = hashlib.sha256()
    for i in inputs:
        h.update(open(i, "rb").read() if os.path.isfile(i) else i.encode())
        h.update(b"\0")
    p = os.path.join(CACHE, "%s-%s" % (name, h.hexdigest()[:16]))
    if not os.path.exists(p):
        os.makedirs(CACHE, exist_ok=True)
        tmp = "%s.tmp%d" % (p, os.getpid())
        try:
            make(tmp)
            os.rename(tmp, p)
        finally:
            if os.path.exists(tmp):
                os.unlink(tmp)
    return p


def table(rows, head):
    w = [max(len(str(r[i])) for r in [head, *rows]) for i in range(len(head))]
    for r in [head, ["-" * x for x in w], *rows]:
        say("  ".join(str(c).ljust(w[i]) if i == 0 else str(c).rjust(w[i]) for i, c in enumerate(r)))
