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
    for line in out.lines() {
        assert!(line.chars().count() <= 80 && line == line.trim_end(), "{line}");
    }
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
    for (args, expected, words) in [
        (vec!["lab", "run", "medfs-fig70", "--out", out], 2, "no experiment is named 'medfs-fig70'"),
        (vec!["lab", "run", "medfs-fig7", "--out", out, "--scale", "2"], 2, "not above 0 and at most 1"),
        (vec!["lab", "work", "postmark", here, "--scale", "0"], 2, "not above 0 and at most 1"),
        (vec!["lab", "work", "solitaire", here], 2, "no workload is named 'solitaire'"),
        (vec!["report", here], 1, "holds no result file"),
        (vec!["report", "/no/such/folder"], 1, "/no/such/folder: No such file or directory\n"),
    ] {
        let (code, _, err) = medfs(&args);
        assert_eq!(code, expected, "{args:?}: {err}");
        assert!(err.contains(words) && err.trim_end().lines().count() == 1, "{args:?}: {err}");
    }
    assert!(!std::path::Path::new(out).exists(), "a run that was refused made its folder");
}

/// Without a folder a run says where its results go, and a report finds them there; a file that cannot be
/// shown is told.
#[test]
fn results_have_a_folder_by_default() {
    let dir = tempfile::tempdir().unwrap();
    let medfs = |args: &[&str]| {
        let output = Command::cargo_bin("medfs").unwrap().args(args).current_dir(&dir).output().unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, text, err) = medfs(&["lab", "run", "ldc-fig3", "--scale", "0.004"]);
    assert_eq!((code, err.as_str()), (0, "Results go to medfs-lab; --out DIR names another directory.\n"));
    assert!(
        text.contains("'medfs report medfs-lab'") && text.lines().all(|l| l.chars().count() <= 80),
        "{text}"
    );
    let (code, text, err) = medfs(&["report"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(text, "medfs-lab/report.html shows 1 experiment and 1 cell\n");
    let (code, _, err) = medfs(&["report", "-o", "elsewhere.html"]);
    let page = std::fs::read_to_string(dir.path().join("elsewhere.html")).unwrap();
    assert!(code == 0 && page.contains("href=\"medfs-lab/figure_ldc-fig3.json\""), "{err}");
    let broken = dir.path().join("medfs-lab/broken.json");
    for (content, words) in [
        ("{\"format\": \"medfs-cell/1\", ", "not JSON"),
        ("{\"format\": \"medfs-cell/9\"}", "medfs-cell/9 is not known to this version"),
        ("{\"format\": \"medfs-figure/1\"}", "missing field"),
    ] {
        std::fs::write(&broken, content).unwrap();
        let (code, text, err) = medfs(&["report", "--format", "csv"]);
        assert!(code == 1 && text.lines().count() > 4, "{text}");
        assert!(err.contains("broken.json") && err.contains(words) && err.lines().count() == 1, "{err}");
    }
}

#[test]
fn a_run_becomes_a_page_and_a_workload_works_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let (code, text, err) = medfs(&["lab", "run", "medfs-fig11b", "--scale", "0.01", "--out", out]);
    assert_eq!(code, 0, "{err}");
    assert!(
        text.contains("with Hcluster") && text.lines().all(|l| l.chars().count() <= 80 || l.contains(out)),
        "{text}"
    );
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
