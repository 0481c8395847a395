#!/usr/bin/env python3
"""random-overwrite.py MOUNTDIR [FSYNCS=500] [PAGES=16] [MIB=128]

Overwrites pages of one large file at random with bytes that look like nothing there is, PAGES of them to each fsync."""
import json, os, random, sys, time
from shutil import which
import subprocess

PAGE = 4096


def mark(phase):
    if which("mark"):
        subprocess.run(["mark", phase], check=True)


def main():
    fsyncs, pages, mib = (int(v) for v in (sys.argv[2:] + ["500", "16", "128"][len(sys.argv) - 2:]))
    rng = random.Random(11)
    path = os.path.join(sys.argv[1], "large.dat")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    for n in range(mib):
        os.pwrite(fd, rng.randbytes(1 << 20), n << 20)
    os.fsync(fd)
    mark("setup")
    start = time.time()
    for _ in range(fsyncs):
        for page in rng.sample(range(mib << 8), pages):
            os.pwrite(fd, rng.randbytes(PAGE), page * PAGE)
        os.fsync(fd)
    took = time.time() - start
    mark("run")
    os.close(fd)
    print(json.dumps({"workload": "random-overwrite", "ops": fsyncs, "app_bytes": fsyncs * pages * PAGE, "seconds": round(took, 3)}))


main()
