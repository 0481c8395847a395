//! What messages advise about damaged volumes helps those who follow it literally.

use crate::common::*;
use crate::damaged::{bad, block_of, blocks, is_inode, page, pages, volume};
use crate::newcomer::says;
use medfs::{FileKind, Files};
use medfs_device::Mapfile;
use medfs_format::superblock::RawSuperblock;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command as System;

const PAGE: u64 = 4096;

fn said(command: &mut assert_cmd::Command, code: i32) -> String {
    let assert = command.assert().code(code);
    let output = assert.get_output();
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

/// Zeros a range of blocks that the superblock names.
fn zero(s: &Scratch, range: impl Fn(&RawSuperblock) -> (u32, u32)) {
    let first = fs::read(s.image()).unwrap()[..4096].to_vec();
    let mut block = medfs_format::Block::boxed();
    block.0.copy_from_slice(&first);
    let (start, end) = range(RawSuperblock::in_block(&block));
    let image = fs::File::options().write(true).open(s.image()).unwrap();
    image.write_all_at(&vec![0; (u64::from(end - start) * PAGE) as usize], u64::from(start) * PAGE).unwrap();
}

#[test]
fn a_map_that_was_given_is_in_the_advice() {
    let s = volume();
    let root = blocks(&s.image(), |block| {
        let f = medfs_format::node::footer(block);
        (f.nid.get(), f.ino.get()) == (3, 3)
    });
    let map = bad(&s, &root);
    for args in [&["get", "-r"][..], &["ls"]] {
        let mut command = medfs();
        command.args(args).arg("--map").arg(&map).arg(s.image());
        if args.len() > 1 {
            command.arg("/").arg(s.path("out"));
        }
        let text = said(&mut command, 1);
        let advice = format!("medfs get --salvage --map {} ", map.display());
        assert!(text.contains(&advice), "{args:?}: {text}");
    }
}

#[test]
fn a_salvage_names_the_directory_that_it_lacks_and_goes_to_no_root() {
    let s = volume();
    let text = said(medfs().args(["get", "--salvage"]).arg(s.image()), 2);
    assert!(text.contains("the directory of this machine to copy to is missing"), "{text}");
    for place in ["/", "-"] {
        let text = said(medfs().args(["get", "--salvage"]).arg(s.image()).arg(place), 2);
        assert!(text.contains("into a directory of this machine"), "{text}");
    }
}

/// A volume that does not open is copied by a salvage, whatever the check found.
#[test]
fn where_a_volume_does_not_open_a_salvage_is_advised() {
    let s = volume();
    // More than the journal of a checkpoint has room for.
    with_engine(&s.image(), true, |v| {
        for n in 0..200 {
            make(v, v.root(), &format!("f{n}"), FileKind::Regular);
        }
    });
    zero(&s, |sb| (sb.nat_blkaddr.get(), sb.ssa_blkaddr.get()));
    let text = said(medfs().arg("fsck").arg(s.image()), 4);
    assert!(text.contains("copy the files first, 'medfs get --salvage"), "{text}");
    fs::create_dir(s.path("mnt")).unwrap();
    let text = said(medfs().arg("mount").arg(s.image()).arg(s.path("mnt")), 32);
    assert!(text.contains("damaged") && text.contains("medfs get --salvage"), "{text}");
}

/// A volume without superblocks would get another UUID at boot.
#[test]
fn a_volume_gets_no_other_uuid_at_boot() {
    let s = volume();
    zero(&s, |_| (0, 2));
    let before = fs::read(s.image()).unwrap();
    let text = said(medfs().args(["fsck", "-p"]).arg(s.image()), 4);
    assert!(text.contains("NOT REPAIRED"), "{text}");
    assert!(fs::read(s.image()).unwrap() == before);
}

/// In a copy of a card zeros stand for what could not be read: with the map of the copy they are nobody's content.
#[test]
fn a_check_past_a_map_does_not_take_zeros_for_content_and_a_repair_writes_the_map_too() {
    let s = volume();
    let data = block_of(&s.image(), &page(3, 0));
    let unread = [&[data], &blocks(&s.image(), |block| is_inode(block, "dir"))[..]].concat();
    let map = bad(&s, &unread);
    let image = fs::File::options().write(true).open(s.image()).unwrap();
    unread.iter().for_each(|at| image.write_all_at(&[0; PAGE as usize], at * PAGE).unwrap());
    let before = fs::read(s.image()).unwrap();
    let fsck = |args: &[&str], code| {
        said(medfs().arg("fsck").args(args).arg("--map").arg(&map).arg(s.image()), code)
    };

    let text = fsck(&["-n"], 4);
    assert!(text.contains("F1101") && text.contains("cannot be read"), "{text}");
    let option = format!("--map {} ", map.display());
    assert!(text.contains(&format!("medfs fsck --repair --undo FILE {option}")), "{text}");
    assert!(text.contains(&format!("medfs get --salvage {option}")), "{text}");
    assert!(fs::read(s.image()).unwrap() == before);
    let mut salvage = medfs();
    salvage.args(["get", "--salvage", "--map"]).arg(&map).arg(s.image()).arg(s.path("out"));
    let text = said(&mut salvage, 1);
    assert!(text.contains(&format!("medfs fsck {option}")), "{text}");

    let undo = s.path("undo");
    let text = fsck(&["--repair", "--undo", undo.to_str().unwrap()], 1);
    assert!(text.contains("repaired"), "{text}");
    // What a repair wrote can be read; content is its owner's matter.
    let text = fsck(&["-n"], 0);
    assert!(!text.contains("F1101"), "{text}");
    medfs().args(["fsck", "--restore"]).arg(&undo).arg(s.image()).assert().code(0);
    assert!(fs::read(s.image()).unwrap() == before);
}

/// A loop device of what lies behind a partition table that is lost; it is detached at the end.
struct Behind(String);

impl Behind {
    fn of(s: &Scratch, card: &str, start: usize) -> Option<Behind> {
        let mut losetup = System::new("losetup");
        losetup.args(["-r", "-o", &start.to_string(), "--show", "-f", card]).current_dir(s.path(""));
        let done = losetup.output().ok().filter(|done| done.status.success());
        if done.is_none() {
            eprintln!("SKIPPED: no loop devices here");
        }
        Some(Behind(String::from_utf8(done?.stdout).unwrap().trim().to_owned()))
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        let _ = System::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// Who copies a card with ddrescue copies all of it, and the volume is a part of that.
#[test]
fn the_map_of_a_whole_card_goes_with_the_volume_on_it() {
    const START: usize = 4 << 20;
    const PAGE: usize = self::PAGE as usize;
    let s = volume();
    let mut card = vec![0; START];
    card.extend(fs::read(s.image()).unwrap());
    card.extend(vec![0; 1 << 20]);
    let content = pages(1, 40);
    let lost = &content[10 * PAGE..11 * PAGE];
    let at = START + card[START..].chunks(PAGE).position(|block| block == lost).unwrap() * PAGE;
    card[at..at + PAGE].fill(0);
    fs::write(s.path("card"), &card).unwrap();
    let Some(Behind(device)) = &Behind::of(&s, "card", START) else { return };
    let (len, rest) = (card.len() as u64, at + PAGE);
    let ranges = format!("0 {at} +\n{at} {PAGE} -\n{rest} {} +\n", card.len() - rest);
    let of_ddrescue = format!("# Mapfile. Created by GNU ddrescue version 1.27\n0 + 1\n{ranges}");
    let mut own = Mapfile::new(len);
    own.set_bad(at as u64..rest as u64);
    for (name, text) in [("card.map", &of_ddrescue), ("own.map", &own.text())] {
        fs::write(s.path(name), text).unwrap();
        for (n, how) in ["get -r", "get --salvage"].iter().enumerate() {
            let from = if n == 0 { " /" } else { "" };
            let said = says(&s, 1, &format!("{how} --map {name} {device}{from} {name}.{n}"));
            assert!(said.contains("/dir/a: bytes 40960-45055 "), "{said}");
            assert!(said.contains("4 KiB of the device cannot be read"), "{said}");
            assert_eq!(fs::read(s.path(&format!("{name}.{n}/dir/b"))).unwrap(), pages(2, 1));
        }
        says(&s, 0, &format!("ls -R --map {name} {device}"));
        says(&s, 0, &format!("fsck --map {name} {device}"));
        let kept = Mapfile::read(&s.path(name)).unwrap().unwrap();
        assert_eq!(
            (kept.end(), kept.bad_bytes(), kept.is_bad(at as u64..rest as u64)),
            (len, PAGE as u64, true)
        );
        // It tells what was read of the card, and not where.
        assert_eq!(kept.text().contains(&format!("{START:#010x}  ")), name == "own.map", "{}", kept.text());
    }
    assert_eq!(fs::read_to_string(s.path("card.map")).unwrap(), of_ddrescue, "no range is moved");
    // One that ends before the device does is of another card.
    fs::write(s.path("short.map"), Mapfile::new(len / 2).text()).unwrap();
    let said = says(&s, 1, &format!("get -r --map short.map {device} / none"));
    assert!(said.contains("it is of a device of "), "{said}");
}
