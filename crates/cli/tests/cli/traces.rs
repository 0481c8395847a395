//! `medfs trace` and `medfs replay`: recorded below a mount, imported from logs, replayed and verified.

use crate::common::{Scratch, can_mount, error, medfs, output};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// What a shell does to files: with appends, renames, links, truncation, failures, a child.
const SCRIPT: &str = "set -e; cd $0; mkdir sub; echo one > sub/a; echo two >> sub/a; cat sub/a > /dev/null; \
    mv sub/a sub/b; ln sub/b c; ln -s sub/b s; truncate -s 100000 c; cat old; ! cat none 2>/dev/null; \
    (dd if=/dev/zero of=z bs=4096 count=5 conv=fsync 2>/dev/null); printf x | dd of=z bs=1 seek=4097 conv=notrunc 2>/dev/null; \
    chmod 600 z; rm c; ls -l > /dev/null";

fn prepared(scratch: &Scratch) -> std::path::PathBuf {
    let dir = scratch.path("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("old"), "was there\n").unwrap();
    dir
}

fn replayed(trace: &Path, more: &[&str]) -> Vec<Value> {
    let assert =
        medfs().arg("replay").arg(trace).args(["--json", "--size", "256M"]).args(more).assert().success();
    json(&String::from_utf8_lossy(&assert.get_output().stdout))["columns"].as_array().unwrap().clone()
}

#[test]
fn a_command_is_recorded_and_replayed() {
    if !can_mount() {
        return;
    }
    for cache in ["none", "through", "writeback"] {
        let scratch = Scratch::new();
        let (dir, trace) = (prepared(&scratch), scratch.path("t"));
        let mut record = medfs();
        record.args(["trace", "record", "--cache", cache, "--out"]).arg(&trace).arg(&dir);
        record.args(["--", "sh", "-c", SCRIPT]).arg(&dir).assert().success().stdout("was there\n");
        // The files are where they were.
        assert_eq!(fs::read_to_string(dir.join("sub/b")).unwrap().trim_end_matches('\0'), "one\ntwo\n");
        assert_eq!(fs::read(dir.join("z")).unwrap()[4097], b'x');
        let info = json(&output(&["trace", "info", "--json"], &[&trace]));
        assert_eq!(info["complete"], true, "{info}");
        assert!(info["by_name"]["write"].as_u64() >= Some(4) && info["by_name"]["rename"] == 1, "{info}");
        assert!(info["processes"].as_u64() >= Some(3), "{info}");
        for column in replayed(&trace, &["--matrix", "delta=off,full", "device=memory,file"]) {
            assert_eq!(column["verification"]["tree"], "identical", "{column}");
            assert_eq!(column["verification"]["results"]["count"], 0, "{column}");
            assert!(column["written_bytes"]["total"].as_u64() > Some(0), "{column}");
        }
        let rows = output(&["trace", "export", "-o", "-"], &[&trace]);
        assert_eq!(rows.lines().count() as u64, info["operations"].as_u64().unwrap());
        // Under the writeback cache nobody in particular writes.
        let mut writes = rows.lines().map(json).filter(|row| row["operation"] == "write");
        assert!(cache == "writeback" || writes.all(|row| row["process"].as_u64() > Some(1)), "{rows}");
    }
}

#[test]
fn the_exit_code_is_the_commands() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let dir = prepared(&scratch);
    let mut record = medfs();
    record.args(["trace", "record", "--private", "-o"]).arg(scratch.path("t")).arg(&dir);
    record.args(["--", "sh", "-c", "echo secret > $0/hidden; exit 7"]).arg(&dir).assert().code(7);
    let trace = fs::read(scratch.path("t")).unwrap();
    assert!(!String::from_utf8_lossy(&trace).contains("hidden"));
    assert_eq!(replayed(&scratch.path("t"), &[])[0]["verification"]["tree"], "identical");
    let text = error(
        1,
        medfs().args(["trace", "record", "-o"]).arg(scratch.path("t")).arg(&dir).args(["--", "true"]),
    );
    assert!(text.contains("exists") && text.contains("--force"), "{text}");
    let text =
        error(1, medfs().args(["trace", "record", "-o"]).arg(dir.join("t")).arg(&dir).args(["--", "true"]));
    assert!(text.contains("must not lie in"), "{text}");
    assert!(!dir.join("t").exists());
    let mut record = medfs();
    record
        .args(["trace", "record", "-o"])
        .arg(scratch.path("none"))
        .arg(&dir)
        .args(["--", "/nonexistent/program"]);
    let text = error(1, &mut record);
    assert!(text.starts_with("medfs trace: cannot run /nonexistent/program: "), "{text}");
    assert!(!scratch.path("none").exists(), "a trace of nothing is left");
}

/// Permission bits.
fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_trace_is_its_owners_alone() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let (dir, trace, rows) = (prepared(&scratch), scratch.path("t"), scratch.path("rows"));
    let record = |force: &[&str]| {
        let mut record = medfs();
        record.args(["trace", "record"]).args(force).arg("-o").arg(&trace).arg(&dir).args(["--", "true"]);
        record.assert().success();
    };
    record(&[]);
    assert_eq!(mode(&trace), 0o600);
    for path in [&trace, &rows] {
        fs::write(path, "others read this").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    }
    let mut opened_before = fs::File::open(&trace).unwrap();
    record(&["--force"]);
    medfs().args(["trace", "export", "--force", "-o"]).arg(&rows).arg(&trace).assert().success();
    assert_eq!([mode(&trace), mode(&rows)], [0o600; 2], "overwritten");
    let mut old = String::new();
    opened_before.read_to_string(&mut old).unwrap();
    assert_eq!(old, "others read this", "a reader of the old file sees nothing of the new one");
    let out = scratch.path("new/out");
    replayed(&trace, &["-o", out.to_str().unwrap()]);
    assert_eq!([mode(&out), mode(&scratch.path("new"))], [0o700; 2]);
}

#[test]
fn a_mounted_volume_is_recorded() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::with_volume("256M");
    let (mnt, trace) = (scratch.path("mnt"), scratch.path("t"));
    fs::create_dir(&mnt).unwrap();
    let options = format!("trace={}", trace.display());
    medfs().args(["mount", "-o", &options]).arg(scratch.image()).arg(&mnt).assert().success();
    fs::write(mnt.join("file"), vec![7; 50_000]).unwrap();
    fs::rename(mnt.join("file"), mnt.join("renamed")).unwrap();
    medfs().arg("umount").arg(&mnt).assert().success();
    let columns = replayed(&trace, &[]);
    assert_eq!(columns[0]["verification"]["tree"], "identical", "{}", columns[0]);
    assert_eq!(columns[0]["file_bytes_written"], 50_000, "{}", columns[0]);
    let text = error(1, medfs().args(["mount", "-o", "trace="]).arg(scratch.image()).arg(&mnt));
    assert!(text.contains("for trace: expected FILE"), "{text}");
}

#[test]
fn a_matrix_goes_on_where_it_was() {
    let scratch = Scratch::new();
    let (log, trace, out) = (scratch.path("log"), scratch.path("t"), scratch.path("out"));
    fs::write(&log, "fio version 2 iolog\n/f add\n/f open\n/f write 0 100000\n/f sync\n/f close\n").unwrap();
    medfs().args(["trace", "import", "fio", "-o"]).arg(&trace).arg(&log).assert().success();
    let run = |matrix: &str| {
        let mut command = medfs();
        command
            .arg("replay")
            .arg(&trace)
            .args(["--size", "256M", "-o"])
            .arg(&out)
            .args(["--matrix", matrix])
            .assert()
            .success();
    };
    run("delta=off");
    let first = out.join("delta=off_device=memory.json");
    let mut result = json(&fs::read_to_string(&first).unwrap());
    assert_eq!(result["kind"], "replay");
    assert_eq!(result["file_bytes_written"], 100_000);
    // What is there stays, so a mark in it does too.
    result["version"] = "marked".into();
    fs::write(&first, result.to_string()).unwrap();
    run("delta=off,full");
    assert_eq!(json(&fs::read_to_string(&first).unwrap())["version"], "marked");
    assert!(out.join("delta=full_device=memory.json").exists());
    // Of another trace it is made anew.
    medfs().args(["trace", "import", "--force", "fio", "-o"]).arg(&trace).arg(&log).assert().success();
    run("delta=off");
    assert_ne!(json(&fs::read_to_string(&first).unwrap())["version"], "marked");
}

#[test]
fn bad_input_is_named_and_the_other_columns_run() {
    let scratch = Scratch::new();
    let (log, trace) = (scratch.path("log"), scratch.path("t"));
    fs::write(&log, "fio version 2 iolog\n/f add\n/f write 0 4096\n").unwrap();
    medfs().args(["trace", "import", "fio", "-o"]).arg(&trace).arg(&log).assert().success();
    let run = |args: &[&str]| {
        medfs().arg("replay").arg(&trace).args(["--json", "--size", "256M"]).args(args).assert().code(1)
    };
    let check = |args: &[&str], columns: usize, words: &[&str]| {
        let assert = run(args);
        let told = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        assert_eq!(
            json(&String::from_utf8_lossy(&assert.get_output().stdout))["columns"].as_array().unwrap().len(),
            columns
        );
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
    };
    check(&["--matrix", "delta=off,other"], 1, &["'other' for delta", "inline", "full"]);
    check(&["--matrix", "delta=off device=memory,floppy"], 1, &["floppy", "memory, file, loop or flash:"]);
    check(&["--matrix", "delta=off", "device=memory,flash:?ftl=tape"], 1, &["flash:?ftl=tape", "pm, zftl"]);
    check(&["--matrix", "delta=off", "--peers", "ntfs"], 1, &["ntfs", "btrfs", "dir:PATH"]);
    check(&["--matrix", "delta=off", "--peers", "dir:/nowhere/at/all"], 1, &["cannot find /nowhere/at/all"]);

    let whole = fs::read(&trace).unwrap();
    fs::write(&trace, &whole[..whole.len() - 10]).unwrap();
    let cut = replayed(&trace, &[]);
    assert_eq!(
        (&cut[0]["trace"]["complete"], &cut[0]["verification"]["tree"]),
        (&false.into(), &"unknown".into())
    );
    fs::write(&trace, "no trace at all, but longer than its opening").unwrap();
    for command in [&["replay"][..], &["trace", "info"], &["trace", "export", "-o", "-"]] {
        let text = error(1, medfs().args(command).arg(&trace));
        assert!(text.contains("not a trace of medfs"), "{text}");
    }
    fs::write(&log, "fio version 2 iolog\n/f add\n/f write 0 many\n").unwrap();
    let text = error(1, medfs().args(["trace", "import", "fio", "-o"]).arg(scratch.path("u")).arg(&log));
    assert!(text.contains("log: line 3: the length is 'many'"), "{text}");
    assert!(!scratch.path("u").exists());
}

#[test]
fn every_column_has_a_flash_device_of_its_own() {
    let scratch = Scratch::new();
    let (log, trace, cards) = (scratch.path("log"), scratch.path("t"), scratch.path("cards"));
    let writes: String =
        (0..200).map(|i| format!("/f write {} 4096\n/f sync 0 0\n", i % 20 * 4096)).collect();
    fs::write(&log, format!("fio version 2 iolog\n/f add\n/f open\n{writes}")).unwrap();
    medfs().args(["trace", "import", "fio", "-o"]).arg(&trace).arg(&log).assert().success();
    let kept = format!("device=flash:?ftl=pm,flash:{}?ftl=ldc,memory", cards.display());
    let columns = replayed(&trace, &["--matrix", &kept]);
    let [pm, ldc, memory] = &columns[..] else { panic!("{columns:?}") };
    assert!(memory["flash"].is_null());
    for (column, ftl) in [(pm, "pm"), (ldc, "ldc")] {
        assert_eq!(column["flash"]["ftl"], ftl);
        // What reached the device is what its host wrote.
        assert_eq!(column["flash"]["host_written_bytes"], column["written_bytes"]["total"]);
        assert_eq!(column["written_bytes"], memory["written_bytes"]);
    }
    assert_eq!(pm["flash"]["compressed_pages"], 0);
    let wrote = |column: &Value| column["flash"]["flash_written_bytes"].as_u64().unwrap();
    assert!(wrote(ldc) < wrote(pm), "{ldc} {pm}");
    let card = fs::read_dir(&cards).unwrap().next().unwrap().unwrap().path();
    medfs().args(["flash", "check"]).arg(&card).assert().success();
    // The time is the trace's: again, the same.
    assert_eq!(replayed(&trace, &["--matrix", "device=flash:?ftl=pm"])[0]["flash"], pm["flash"]);
    let told = error(1, medfs().arg("replay").arg(&trace).args(["--size", "256M", "--matrix", &kept]));
    assert!(told.contains("remove it"), "{told}");
}

/// strace prints 32 bytes of each content unless it is asked for more.
#[test]
fn what_strace_did_not_print_is_told() {
    let s = Scratch::new();
    let some = "\\x61".repeat(32);
    let log = [
        "1 openat(AT_FDCWD</>, \"\\x2f\\x74\\x2f\\x61\", O_RDWR|O_CREAT, 0644) = 3</t/a>\n".to_owned(),
        format!("1 write(3</t/a>, \"{some}\"..., 4096) = 4096\n"),
        format!("1 pread64(3</t/a>, \"{some}\"..., 1000, 100) = 1000\n"),
        "1 close(3</t/a>) = 0\n".to_owned(),
    ];
    std::fs::write(s.path("log"), log.concat()).unwrap();
    let (log, trace) = (s.path("log"), s.path("trace"));
    let text = output(&["trace", "import", "strace", "--root", "/t", "-o"], &[&trace, &log]);
    assert!(
        text.contains("of contents, in whose place a replay writes noise: 'strace -s 1048576' logs all"),
        "{text}"
    );
    let text = error(1, medfs().arg("replay").arg(&trace));
    assert!(text.contains("what is read there is not as recorded: the log lacks"), "{text}");
    assert!(output(&["trace", "info"], &[&trace]).starts_with("trace of a log of strace\n"));
}

#[test]
fn a_trace_after_the_matrix_is_told_so() {
    let told = error(2, medfs().args(["replay", "--matrix", "delta=off", "t.trace"]));
    assert!(told.contains("'t.trace' is not an axis") && told.contains("before --matrix"), "{told}");
}

#[test]
fn a_recording_that_is_interrupted_is_a_whole_trace() {
    if !can_mount() {
        return;
    }
    // The second command does not obey, and is ended by the second signal.
    for (script, interrupts, code) in
        [("echo x > $0/f; exec sleep 60", 1, 130), ("trap '' INT; echo x > $0/f; exec sleep 60", 2, 143)]
    {
        let scratch = Scratch::new();
        let (dir, trace) = (prepared(&scratch), scratch.path("t"));
        let mut record = std::process::Command::new(crate::common::binary());
        record
            .args(["trace", "record", "--out"])
            .arg(&trace)
            .arg(&dir)
            .args(["--", "sh", "-c", script])
            .arg(&dir);
        // No terminal sends it signals.
        let mut recording =
            std::os::unix::process::CommandExt::process_group(&mut record, 0).spawn().unwrap();
        let wait_for = |what: &str, holds: &mut dyn FnMut() -> bool| {
            let start = std::time::Instant::now();
            while !holds() {
                assert!(start.elapsed() < std::time::Duration::from_secs(30), "{what}");
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        };
        wait_for("the command runs", &mut || dir.join("f").exists());
        let pid = rustix::process::Pid::from_raw(recording.id() as i32).unwrap();
        for _ in 0..interrupts {
            // The command is a shell no longer.
            std::thread::sleep(std::time::Duration::from_millis(300));
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        }
        let mut status = None;
        wait_for("it ends", &mut || {
            status = recording.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(code), "{script}");
        let info = json(&output(&["trace", "info", "--json"], &[&trace]));
        assert!(info["complete"] == true && info["by_name"]["write"].as_u64() >= Some(1), "{info}");
        assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), "x\n");
    }
}
