//! Volumes made by f2fs-tools, with every feature combination it is to support, have no findings.

use crate::common::{Bed, load};
use medfs_fsck::{Options, check};

const FEATURES: &[&[&str]] = &[
    &[],
    &["-O", "extra_attr"],
    &["-O", "extra_attr,project_quota"],
    &["-O", "extra_attr,inode_checksum"],
    &["-O", "extra_attr,flexible_inline_xattr"],
    &["-O", "extra_attr,inode_crtime"],
    &["-O", "quota"],
    &["-O", "lost_found"],
    &["-O", "sb_checksum"],
    &["-i"],
    &[
        "-O",
        "extra_attr,project_quota,inode_checksum,flexible_inline_xattr,quota,inode_crtime,lost_found,sb_checksum",
    ],
    &["-s", "2"],
    &["-s", "4", "-z", "2"],
    &["-i", "-s", "2", "-O", "extra_attr,inode_checksum,sb_checksum"],
];

#[test]
fn volumes_made_by_f2fs_tools_are_clean() {
    let bed = Bed::new();
    for options in FEATURES {
        let dev = load(&bed.filled("clean.img", options));
        bed.judge(&dev).unwrap();
        let mut last = 0.0;
        let report = check(&dev, &Options::default(), &mut |done| {
            assert!((last..=1.0).contains(&done));
            last = done;
        })
        .unwrap();
        assert_eq!(report.findings, [], "{options:?}");
        // sload.f2fs 1.15 gives up early where sections have several segments.
        let files = if options.contains(&"-s") { 1 } else { 701 };
        assert!(report.files() >= files && report.directories() >= 5, "{options:?}: {report:?}");
        assert_eq!(last, 1.0);
    }
}
