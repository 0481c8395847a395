#!/usr/bin/env python3
"""atomic-file.py MOUNTDIR [ROUNDS=500] [KIB=100] [DIRSYNC=dirsync|nodirsync]: a file of settings (JSON, one a line) in which each round
changes a value or, in one of ten rounds, adds a setting; written as editors and Android's AtomicFile do it: a new file, fsync, rename
over the old one, fsync of the directory."""
import json, os, random, shutil, subprocess, sys, time
arg = dict(enumerate(sys.argv))
root, rounds, kib, dirsync = arg[1], int(arg.get(2, 500)), int(arg.get(3, 100)), arg.get(4, "dirsync") == "dirsync"


def mark(name):
    if shutil.which("mark"):
        subprocess.run(["mark", name], check=True)


rnd = random.Random(4711)
WORDS = ["".join(rnd.choices("etaoinshrdlucmfwyp", k=rnd.randint(3, 9))) for _ in range(800)]
d = os.path.join(root, "atomic-file")
os.makedirs(d, exist_ok=True)
path = os.path.join(d, "settings.json")


def setting():
    return ".".join(rnd.choices(WORDS, k=3)), " ".join(rnd.choices(WORDS, k=rnd.randint(1, 6)))


settings = []
while sum(len(k) + len(v) + 9 for k, v in settings) < kib * 1024:
    settings.append(setting())


def save():
    text = "{\n" + ",\n".join("  %s: %s" % (json.dumps(k), json.dumps(v)) for k, v in settings) + "\n}\n"
    with open(path + ".tmp", "w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.rename(path + ".tmp", path)
    if dirsync:
        fd = os.open(d, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(fd)
        os.close(fd)
    return text


for _ in range(3):
    text = save()
    mark("setup")
t0 = time.monotonic()
app = 0
for i in range(rounds):
    at = rnd.randrange(len(settings))
    if i % 10 == 9:
        settings.insert(at, setting())
    else:
        settings[at] = (settings[at][0], setting()[1])
    text = save()
    app += len(text)
t1 = time.monotonic()
mark("run")
bad = open(path).read() != text
print(json.dumps({"workload": "atomic-file", "ops": rounds, "app_bytes": app, "file_bytes": len(text), "seconds": round(t1 - t0, 3), "bad_files": int(bad)}))
sys.exit(bad)
