//! Atomic writes of one file that two threads begin at the same moment.

use crate::common::*;
use medfs::Files;
use std::sync::{Arc, Barrier};

/// Rounds: the moment is a few instructions long.
const ROUNDS: u64 = 3000;

#[test]
fn what_two_threads_write_in_one_atomic_write_is_committed() {
    let v = Arc::new(open_device(&Arc::new(blank(64, all_features())), "cache=64M"));
    let (f, _) = noisy_file(&v, "f", 2);
    let free = v.space().free;
    for round in 1..=ROUNDS {
        write(&v, f, 100, &round.to_le_bytes());
        let together = Arc::new(Barrier::new(2));
        let threads = [0, 1].map(|n: u64| {
            let (v, together) = (v.clone(), together.clone());
            std::thread::spawn(move || {
                together.wait();
                v.atomic_start(f).expect("begun");
                write(&v, f, n * PAGE as u64, &round.to_le_bytes());
            })
        });
        threads.into_iter().for_each(|thread| thread.join().expect("the thread ends"));
        v.atomic_commit(f).expect("committed");
        let content = content(&v, f);
        for at in [0, PAGE] {
            let found = u64::from_le_bytes(content[at..at + 8].try_into().expect("eight"));
            assert_eq!(found, round, "page {} in round {round}", at / PAGE);
        }
    }
    v.sync().expect("sync");
    assert_eq!(v.space().free, free, "what was kept for staged pages is given back");
}
