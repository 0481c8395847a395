//! x
use medfs_lab::experiment::{Settings, Silent, run};
#[test]
fn fig7() {
    let scale: f64 = std::env::var("S").map(|s| s.parse().unwrap()).unwrap_or(0.02);
    let f = run("medfs-fig7", &Settings { out: "/tmp/labout".into(), seed: 1, scale: Some(scale), progress: &Silent }).unwrap();
    for r in f.rows { println!("{:6} {:6} paper {:?} ours {:?} {}", r.scheme, r.label, r.paper, r.ours, r.reason); }
}
