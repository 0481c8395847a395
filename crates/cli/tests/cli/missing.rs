//! What is missing of a volume, or is another file's, is told by `medfs get`, and makes its exit code 1.

use crate::common::*;
use crate::damaged::{is_inode, stderr};
use medfs::{Files, MountOptions, RenameFlags, SystemClock, Volume};
use medfs_device::read_block;
use medfs_format::dentry::{Area, AreaLayout};
use medfs_format::node::{Advise, FileKind, RawInode};
use medfs_format::superblock::{Feature, RawSuperblock};
use medfs_format::{BLOCK_SIZE, Block};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const FILES: usize = 401;

fn name(index: usize) -> String {
    format!("file-with-a-long-name-{index:03}")
}

/// `/dir` of so many files that it has blocks of entries, and beside it `/second`, another name of its
/// file 7. Files 3 and 5 were renamed, after which F2FS does not rely on the names in their inodes.
fn volume() -> Scratch {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        let dir = make(v, v.root(), "dir", FileKind::Directory);
        for index in 0..FILES {
            let is_renamed = index == 3 || index == 5;
            let first = if is_renamed { "before".into() } else { name(index) };
            let ino = make(v, dir, &first, FileKind::Regular);
            v.write(ino, 0, name(index).as_bytes()).unwrap();
            if is_renamed {
                v.rename(dir, b"before", dir, name(index).as_bytes(), RenameFlags::empty()).unwrap();
            }
            if index == 7 {
                v.link(ino, v.root(), b"second").unwrap();
            }
        }
    });
    s
}

/// Whether a block holds entries of these files: how many, and which with the place of its slot.
fn entries(block: &Block) -> Vec<(String, usize)> {
    let area = Area::new(AreaLayout::BLOCK, &block.0[..]);
    let all = area.entries(0, 0).map_while(Result::ok);
    all.filter_map(|entry| Some((String::from_utf8(entry.name.to_vec()).ok()?, entry.slot)))
        .filter(|(name, _)| name.starts_with("file-with-a-long-name-"))
        .collect()
}

fn has(block: &Block, name: &str) -> bool {
    entries(block).iter().any(|(other, _)| other == name)
}

/// The number in the entry of a name.
fn entry_of(image: &Path, name: &str) -> u32 {
    let dev = open(image);
    let found = (0..dev_blocks(&dev)).find_map(|addr| {
        let block = read_block(&dev, addr).unwrap();
        let (_, slot) = entries(&block).into_iter().find(|(other, _)| other == name)?;
        Area::new(AreaLayout::BLOCK, &block.0[..]).entry(slot, 0).ok().map(|entry| entry.ino)
    });
    found.expect("the name")
}

fn dev_blocks(dev: &medfs_device::FileDevice) -> u64 {
    medfs_device::BlockDevice::block_count(dev)
}

/// Makes the entry of one name lead to another inode.
fn lead(image: &Path, name: &str, to: u32) {
    let change = |block: &mut Block| {
        let (_, slot) = entries(block).into_iter().find(|(other, _)| other == name).unwrap();
        Area::new(AreaLayout::BLOCK, &mut block.0[..]).set_target(slot, to, FileKind::Regular);
    };
    assert_eq!(damage(image, |block| has(block, name), change), 1);
}

fn all(s: &Scratch, how: &[&str], code: i32, to: &str) -> String {
    let mut command = medfs();
    command.arg("get").args(&how[..1]).arg(s.image()).args(&how[1..]).arg(s.path(to));
    stderr(&command.assert().code(code))
}

fn count(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, |names| names.count())
}

#[test]
fn a_block_of_a_directory_that_is_zeros_is_told() {
    let s = volume();
    let mut hit = Vec::new();
    let dev = open(&s.image());
    for addr in 0..dev_blocks(&dev) {
        hit.extend(entries(&read_block(&dev, addr).unwrap()).len().gt(&1).then_some(addr));
    }
    drop(dev);
    assert!(hit.len() > 2, "{hit:?}");
    let sound = fs::read(s.image()).unwrap();
    for addr in [hit[0], hit[hit.len() - 1]] {
        fs::write(s.image(), &sound).unwrap();
        let image = fs::File::options().write(true).open(s.image()).unwrap();
        image.write_all_at(&[0; BLOCK_SIZE], addr * BLOCK_SIZE as u64).unwrap();
        let to = format!("out{addr}");
        let text = all(&s, &["-r", "/"], 1, &to);
        let missing = FILES - count(&s.path(&to).join("dir"));
        assert!(missing > 10, "{text}");
        assert!(text.contains("/dir: the directory is damaged, and names may be missing"), "{text}");
        let number = format!("{missing} files and directories without a directory entry are in the volume");
        let hint = format!("'medfs get --salvage {} DIRECTORY'", s.image().display());
        // One of them may be the file that has a name elsewhere.
        assert!(text.contains(&number) || text.contains("it has 2 names, of which 1 was found"), "{text}");
        assert!(text.contains(&hint), "{text}");
        assert!(all(&s, &["-r", "/dir"], 1, &format!("{to}.dir")).contains("/dir: the directory is damaged"));
        let text = error(1, medfs().args(["ls", "-R"]).arg(s.image()));
        assert!(text.contains("/dir"), "{text}");
        // A salvage brings them all, and says what it lacks: their names.
        let to = format!("salvaged{addr}");
        let text = all(&s, &["--salvage"], 1, &to);
        assert!(text.contains("/dir: the directory is damaged"), "{text}");
        assert!(
            count(&s.path(&to).join("dir")) >= FILES - 1 && !s.path(&to).join("by-inode").exists(),
            "{text}"
        );
        // A repair gives the names back.
        let out = medfs().args(["fsck"]).arg(s.image()).assert().code(4);
        assert!(String::from_utf8_lossy(&out.get_output().stdout).contains("F0814"));
        medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
        all(&s, &["-r", "/"], 0, &format!("repaired{addr}"));
        // But for one that has a name elsewhere, and two whose inodes are not relied on.
        assert!(count(&s.path(&format!("repaired{addr}")).join("dir")) >= FILES - 3);
    }
}

#[test]
fn an_entry_that_leads_to_another_file_is_told() {
    let s = volume();
    let (victim, other) = (name(3), name(5));
    lead(&s.image(), &victim, entry_of(&s.image(), &other));
    let told = format!("/dir/{victim}: its entry leads to inode {}", entry_of(&s.image(), &other));
    let text = all(&s, &["-r", "/"], 1, "out");
    assert!(
        text.contains(&told) && text.contains(&format!("which has one name, {other} in the same directory")),
        "{text}"
    );
    assert!(text.contains("1 file or directory without a directory entry is in the volume"), "{text}");
    assert_eq!(text.matches("its entry leads to").count(), 1, "{text}");
    // By its name alone, and on standard output.
    let path = format!("/dir/{victim}");
    let one = |to: &Path| {
        let mut command = medfs();
        command.arg("get").arg(s.image()).arg(&path).arg(to);
        error(1, &mut command)
    };
    let text = one(&s.path("one"));
    assert!(text.contains(&told) && text.contains("get --salvage"), "{text}");
    assert!(one(Path::new("-")).contains(&told));
    // A salvage says the same, and brings the file that lost its name.
    let text = all(&s, &["--salvage"], 1, "salvaged");
    assert!(text.contains(&told), "{text}");
    assert!(text.contains("another file has its name"), "{text}");
    let beside = format!("{victim}.");
    let unnamed: Vec<_> = fs::read_dir(s.path("salvaged/dir"))
        .unwrap()
        .map(|e| e.unwrap())
        .filter(|e| e.file_name().to_string_lossy().starts_with(&beside))
        .collect();
    assert_eq!(unnamed.len(), 1);
    assert_eq!(fs::read_to_string(unnamed[0].path()).unwrap(), victim);
    // Where the inodes can be relied on, it takes the entry back to its own.
    let s = volume();
    lead(&s.image(), &name(4), entry_of(&s.image(), &name(11)));
    assert!(all(&s, &["-r", "/"], 1, "out").contains("its entry leads to inode"));
    all(&s, &["--salvage"], 0, "salvaged");
    (0..FILES)
        .for_each(|i| assert_eq!(fs::read_to_string(s.path("salvaged/dir").join(name(i))).unwrap(), name(i)));
}

#[test]
fn a_name_more_than_a_file_has_is_told_and_one_less() {
    let s = volume();
    lead(&s.image(), &name(3), entry_of(&s.image(), &name(7)));
    let text = all(&s, &["-r", "/"], 1, "more");
    assert!(text.contains("which has 2 names, and this is one more (3)"), "{text}");
    let s = volume();
    lead(&s.image(), &name(7), entry_of(&s.image(), &name(3)));
    let text = all(&s, &["-r", "/"], 1, "less");
    assert!(text.contains("/second: it has 2 names, of which 1 was found"), "{text}");
    let told = format!("/dir/{}: its entry leads to inode", name(7));
    assert!(text.contains(&told) && text.contains(&name(3)), "{text}");
    // What is told of is not whole, each file once.
    let assert = medfs().args(["get", "-r", "--json"]).arg(s.image()).arg("/").arg(s.path("json")).assert();
    let json: serde_json::Value = serde_json::from_slice(&assert.code(1).get_output().stdout).unwrap();
    let failed = json["failed"].as_array().unwrap().len();
    assert_eq!((failed, json["not_whole"].as_u64()), (2, Some(2)), "{json}");
}

/// Zeros are in place of the target: nothing is missing on the machine that it is copied to.
#[test]
fn a_link_that_lost_its_target_is_said_to_have_lost_it() {
    let (s, target) = (plain(), b"where it leads");
    with_engine(&s.image(), true, |v| {
        let link = v.symlink(v.root(), b"link", target, 0, 0).unwrap().ino;
        v.release(link, 1);
    });
    let find = |block: &Block| block.0.windows(target.len()).position(|bytes| bytes == target);
    let clear = |block: &mut Block| {
        let at = find(block).unwrap();
        block.0[at..at + target.len()].fill(0);
    };
    assert!(damage(&s.image(), |block| find(block).is_some(), clear) > 0);
    for (args, to) in [(&["-r", "/"][..], "out"), (&["--salvage"], "salvaged")] {
        let text = all(&s, args, 1, to);
        assert!(text.contains("/link: its target is lost"), "{text}");
    }
    let text = error(1, medfs().args(["ls", "-l"]).arg(s.image()));
    assert!(text.contains("/link: its target is lost"), "{text}");
}

#[test]
fn a_flipped_bit_of_a_name_is_told() {
    let s = volume();
    let change = |block: &mut Block| {
        let wanted = name(9);
        let at = block.0.windows(wanted.len()).position(|bytes| bytes == wanted.as_bytes()).unwrap();
        block.0[at] ^= 1;
    };
    damage(&s.image(), |block| has(block, &name(9)), change);
    let text = all(&s, &["-r", "/"], 1, "out");
    assert!(text.contains("/dir: the directory is damaged") && text.contains("hash_code"), "{text}");
    assert_eq!(fs::read_to_string(s.path("out/dir").join(name(9).replacen('f', "g", 1))).unwrap(), name(9));
}

#[test]
fn trees_that_overlap_are_copied_each() {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        let dir = make(v, v.root(), "dir", FileKind::Directory);
        let inner = make(v, dir, "inner", FileKind::Directory);
        let file = make(v, inner, "file", FileKind::Regular);
        v.link(file, inner, b"again").unwrap();
    });
    fs::create_dir(s.path("out")).unwrap();
    all(&s, &["-r", "/dir", "/dir/inner"], 0, "out");
    assert!(s.path("out/inner/again").exists() && s.path("out/dir/inner/file").exists());
}

/// An image that ends anywhere: with 0 ends a salvage that brought all files.
#[test]
fn a_salvage_of_an_image_that_is_cut_short_anywhere_says_what_is_lost() {
    let s = volume();
    let sound = fs::read(s.image()).unwrap();
    let last = sound.chunks(BLOCK_SIZE).rposition(|block| block.iter().any(|&b| b != 0)).unwrap() + 1;
    let middle = last - FILES / 2;
    let mut exits = [0, 0];
    for blocks in [1, 2, 256, 512, 1024, 2048, 3000, 4096, middle, last - 1, last, last + 1] {
        fs::write(s.image(), &sound[..blocks * BLOCK_SIZE]).unwrap();
        let to = s.path(&format!("out{blocks}"));
        let assert = medfs().args(["get", "--salvage"]).arg(s.image()).arg(&to).assert();
        let (code, text) = (assert.get_output().status.code().unwrap(), stderr(&assert));
        exits[code as usize] += 1;
        let content = |index: usize| fs::read_to_string(to.join("dir").join(name(index))).unwrap_or_default();
        let whole = (0..FILES).all(|index| content(index) == name(index));
        // Names that a directory lost may be more than those that the inodes tell.
        let may_miss = text.contains("names may be missing");
        assert_eq!(code == 0, whole && !may_miss, "{blocks} blocks: {text}");
        if !to.exists() {
            assert_eq!(text.lines().count(), 1, "{text}");
            let why =
                if blocks < 2 { "is too short for an F2FS volume" } else { "nothing can be salvaged from" };
            assert!(text.contains(why), "{text}");
        }
    }
    assert!(exits[0] >= 2 && exits[1] >= 9, "{exits:?}");
}

/// Superblock and NAT lost together, as junk or zeros over the beginning of a card leave it: all files come,
/// and a repair keeps them in place.
#[test]
fn superblock_and_nat_may_be_lost_together() {
    let tree = Scratch::new();
    fs::create_dir(tree.path("tree")).unwrap();
    for index in 0..40 {
        let content: Vec<u8> = (0..index * 1500).map(|i| (i / 5 * 7 + index) as u8 | 1).collect();
        fs::write(tree.path("tree").join(name(index)), content).unwrap();
    }
    for kind in [&["--label", ""][..], &["--plain", "-O", "none"]] {
        let s = Scratch::new();
        let mut mkfs = medfs();
        mkfs.args(["mkfs", "-q", "--size", "64M"]).args(kind).arg("--from").arg(tree.path("tree"));
        mkfs.arg(s.image()).assert().success();
        let dev = open(&s.image());
        let sb = RawSuperblock::in_block(&read_block(&dev, 0).unwrap()).clone();
        drop(dev);
        let (nat, end) = (u64::from(sb.nat_blkaddr.get()), u64::from(sb.ssa_blkaddr.get()));
        let mut image = fs::read(s.image()).unwrap();
        for block in [0, 1].into_iter().chain(nat..end) {
            image[block as usize * BLOCK_SIZE..][..BLOCK_SIZE].fill(0);
        }
        fs::write(s.image(), image).unwrap();
        all(&s, &["--salvage"], 0, "salvaged");
        let content = |to: &str| {
            let mut names: Vec<_> = fs::read_dir(s.path(to)).unwrap().map(|e| e.unwrap().path()).collect();
            names.retain(|path| path.is_file());
            names.sort();
            names.iter().map(|path| crc32fast::hash(&fs::read(path).unwrap())).collect::<Vec<_>>()
        };
        let expected = (0..40).map(|i| crc32fast::hash(&fs::read(tree.path("tree").join(name(i))).unwrap()));
        assert_eq!(content("salvaged"), expected.collect::<Vec<_>>(), "{kind:?}");
        let told = medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
        let told = String::from_utf8_lossy(&told.get_output().stdout).into_owned();
        assert!(!told.contains("Feature("), "{told}");
        all(&s, &["-r", "/"], 0, "repaired");
        assert_eq!(content("repaired"), content("salvaged"), "{told}");
    }
}

#[test]
fn where_a_salvage_may_find_more_get_and_ls_say_so() {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        let outer = make(v, v.root(), "outer", FileKind::Directory);
        let inner = make(v, outer, "inner", FileKind::Directory);
        let file = make(v, inner, "file", FileKind::Regular);
        v.write(file, 0, b"content").unwrap();
        make(v, outer, "other", FileKind::Regular);
    });
    let sound = fs::read(s.image()).unwrap();
    let salvage = format!("'medfs get --salvage {} DIRECTORY' also ", s.image().display());
    let looks = format!("{salvage}looks for files that the directories no longer lead to");
    let rebuilds = format!("{salvage}rebuilds files whose inode is damaged, as far as their content is left");
    let any = format!("{looks}, and rebuilds files whose inode is damaged");
    let get = |path: &str, to: &str| error(1, medfs().args(["get", "-r"]).arg(s.image()).args([path, to]));
    let to = s.path("out").display().to_string();
    // A directory whose inode is lost.
    assert!(damage(&s.image(), |b| is_inode(b, "inner"), |b| b.0.fill(0)) > 0);
    assert!(get("/outer", &to).contains(&format!("medfs get: {looks}\n")), "{}", get("/outer", &to));
    let text = get("/outer/inner/file", &to);
    assert!(text.contains("the volume is damaged") && text.ends_with(&format!("; {any}\n")), "{text}");
    for (args, ends) in
        [(["-R", "/outer"], format!("medfs ls: {looks}\n")), (["-l", "/outer/inner"], format!("; {any}\n"))]
    {
        let mut command = medfs();
        let text = error(1, command.arg("ls").arg(args[0]).arg(s.image()).arg(args[1]));
        assert!(text.contains(&ends), "{text}");
    }
    // A file whose inode is lost may be made of what else is left of it.
    fs::write(s.image(), sound).unwrap();
    assert!(damage(&s.image(), |b| is_inode(b, "other"), |b| b.0.fill(0)) > 0);
    let text = get("/outer", &to);
    let is_hinted = text.contains(&format!("medfs get: {rebuilds}\n"));
    assert!(text.contains("/outer/other: its inode cannot be read") && is_hinted, "{text}");
    let text = error(1, medfs().arg("ls").arg(s.image()).arg("/outer"));
    assert!(text.contains(&format!("medfs ls: {rebuilds}\n")), "{text}");
}

/// The target of an encrypted link is ciphertext, and no path.
#[test]
fn encrypted_files_and_links_are_named_as_such() {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        let file = make(v, v.root(), "secret", FileKind::Regular);
        v.write(file, 0, &[7; 9000]).unwrap();
        v.symlink(v.root(), b"inline", b"ciphertext", 0, 0).unwrap();
        v.symlink(v.root(), b"open", b"plain text", 0, 0).unwrap();
    });
    for name in ["secret", "inline"] {
        let marks = Advise::ENCRYPT | Advise::ENC_NAME;
        let encrypt = |block: &mut Block| block.view_mut::<RawInode>().i_advise |= marks.bits();
        assert!(damage(&s.image(), |b| is_inode(b, name), encrypt) > 0);
    }
    let image = fs::File::options().write(true).open(s.image()).unwrap();
    for copy in 0..2 {
        let at = (copy * BLOCK_SIZE + 1024 + std::mem::offset_of!(RawSuperblock, feature)) as u64;
        image.write_all_at(&Feature::ENCRYPT.bits().to_le_bytes(), at).unwrap();
    }
    let told = "it is encrypted, and medfs cannot decrypt: the kernel's f2fs reads it with its key";
    for (args, to) in [(&["-r", "--json"][..], "r"), (&["--salvage", "--json"], "salvage")] {
        let mut command = medfs();
        command.arg("get").args(args).arg(s.image());
        if to == "r" {
            command.arg("/");
        }
        let assert = command.arg(s.path(to)).assert().code(1);
        let json: serde_json::Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
        let reasons: Vec<(&str, &str)> = json["failed"]
            .as_array()
            .unwrap()
            .iter()
            .map(|failure| (failure["path"].as_str().unwrap(), failure["reason"].as_str().unwrap()))
            .collect();
        let reason = |path: &str| reasons.iter().find(|(other, _)| *other == path).map(|(_, reason)| *reason);
        assert_eq!(reason("/secret"), Some(told), "{json}");
        let link = format!("the link's target cannot be read: {told}");
        assert_eq!(reason("/inline"), Some(&link[..]), "{json}");
        assert_eq!(reasons.len(), 2, "{json}");
        assert!(fs::symlink_metadata(s.path(to).join("inline")).is_err());
        assert_eq!(fs::read_link(s.path(to).join("open")).unwrap(), Path::new("plain text"));
    }
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let v = Volume::open(Arc::new(open(&s.image())), options, Arc::new(SystemClock)).unwrap();
    let ino = |name: &[u8]| v.lookup(v.root(), name).unwrap().ino;
    assert_eq!(v.readlink(ino(b"inline")).unwrap_err().errno(), 95);
    assert_eq!(v.read(ino(b"secret"), 0, &mut [0; 9]).unwrap_err().errno(), 95);
}
