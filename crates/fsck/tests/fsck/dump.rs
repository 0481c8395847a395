//! What `dump` shows is what f2fs-tools put there.

use crate::common::{Bed, load};
use medfs_fsck::dump::{Dump, DumpError, Value};

#[test]
fn structures_are_shown_as_they_are() {
    let bed = Bed::new();
    let dev = load(&bed.filled("dump.img", &["-l", "Karte", "-O", "extra_attr,inode_checksum"]));
    let mut dump = Dump::open(&dev).unwrap();
    let sb = dump.superblock();
    assert_eq!(sb.get("volume_name"), Some(&Value::Text("Karte".into())));
    assert_eq!(sb.get("feature"), Some(&Value::Text("extra_attr inode_checksum".into())));
    assert!(serde_json::to_string(&sb).unwrap().contains("\"root_ino\":3"));
    assert!(dump.checkpoint().unwrap().to_string().contains("valid_inode_count"));

    let root = dump.path("/").unwrap();
    assert_eq!(root.get("ino"), Some(&Value::Number(3)));
    assert_eq!(root.get("faults"), None);
    let big = dump.path("/indirect").unwrap();
    assert_eq!(big.get("i_size"), Some(&Value::Number(4096 * (923 + 2 * 1018 + 100))));
    let many = dump.path("many/file number 00432 with a longish name").unwrap();
    assert_eq!(many.get("i_size"), Some(&Value::Number(432 % 40)));
    assert_eq!(dump.path("link").unwrap().get("i_size"), Some(&Value::Number(5)));
    assert!(matches!(dump.path("many/none"), Err(DumpError::NotFound(_))));
    assert!(matches!(dump.inode(u32::MAX), Err(DumpError::NotFound(_))));

    assert_eq!(dump.nat(3).unwrap().get("ino"), Some(&Value::Number(3)));
    assert!(dump.nat(u32::MAX).is_err() && dump.sit(u32::MAX).is_err());
    assert!(dump.sit(0).unwrap().to_string().contains("valid_map"));
}
