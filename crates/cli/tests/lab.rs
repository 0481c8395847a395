//! `medfs lab` and `medfs report` as a user meets them.

use assert_cmd::Command;

fn medfs(args: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("medfs").unwrap().args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_list_names_experiments_workloads_and_programs() {
    let (code, out, _) = medfs(&["lab", "list"]);
    assert_eq!(code, 0);
    for name in ["medfs-fig7", "medfs-tables", "tpcc-wal", "home-automation", "git"] {
        assert!(out.contains(name), "{name} is missing in:\n{out}");
    }
    let (_, out, _) = medfs(&["lab", "list", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(list["experiments"].as_array().unwrap().len() >= 12);
}

#[test]
fn wrong_words_get_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let here = dir.path().to_str().unwrap();
    for (args, words) in [
        (vec!["lab", "run", "medfs-fig70", "--out", out], "no experiment is named 'medfs-fig70'"),
        (vec!["lab", "run", "medfs-fig7", "--out", out, "--scale", "2"], "not above 0 and at most 1"),
        (vec!["lab", "work", "postmark", here, "--scale", "0"], "not above 0 and at most 1"),
        (vec!["lab", "work", "solitaire", here], "no workload is named 'solitaire'"),
        (vec!["report", here], "holds no result file"),
        (vec!["report", "/no/such/folder"], "/no/such/folder"),
    ] {
        let (code, _, err) = medfs(&args);
        assert_eq!(code, 1, "{args:?}: {err}");
        assert!(err.contains(words) && err.trim_end().lines().count() == 1, "{args:?}: {err}");
    }
    assert!(!std::path::Path::new(out).exists(), "a run that was refused made its folder");
}

#[test]
fn a_run_becomes_a_page_and_a_workload_works_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let (code, text, err) = medfs(&["lab", "run", "medfs-fig11b", "--scale", "0.02", "--out", out]);
    assert_eq!(code, 0, "{err}");
    assert!(text.contains("with Hcluster") && text.lines().all(|l| l.chars().count() <= 110), "{text}");
    let (code, text, err) = medfs(&["report", out]);
    assert_eq!((code, err.as_str()), (0, ""), "{text}");
    let page = std::fs::read_to_string(dir.path().join("out/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("medfs-fig11b"));
    let (_, csv, _) = medfs(&["report", out, "--format", "csv"]);
    assert!(csv.starts_with("experiment,label,scheme,paper,ours"), "{csv}");

    let work = dir.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let (code, text, err) = medfs(&["lab", "work", "editor", work.to_str().unwrap(), "--scale", "0.01"]);
    assert!(code == 0 && text.contains("saves"), "{text}{err}");
    let (code, _, err) = medfs(&["lab", "work", "editor", work.to_str().unwrap()]);
    assert!(code == 1 && err.contains("is not empty"), "{err}");
}
