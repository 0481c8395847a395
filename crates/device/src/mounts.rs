//! The kernel's list of mounts, as far as it tells what uses a device. Reading it asks no file system.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The directory.
    pub on: PathBuf,
    /// The kind of file system, such as `fuse.medfs`.
    pub kind: String,
    /// The mounted thing, as the file system calls it.
    pub source: PathBuf,
    /// Major and minor number of the device; of a FUSE mount without one the minor number is that of its connection.
    pub device: (u32, u32),
    /// Whether nothing can be written through it.
    pub read_only: bool,
    /// The user and group whose processes the kernel lets in, of a FUSE mount without `allow_other`.
    pub owner: Option<(u32, u32)>,
}

impl MountEntry {
    /// Whether it is a mount of this program.
    pub fn is_medfs(&self) -> bool {
        self.kind.ends_with(".medfs")
    }

    /// The file or device of a source that may be a flash device with options (`flash:PATH?OPTIONS`).
    pub fn device_path(&self) -> &Path {
        use std::os::unix::ffi::OsStrExt;
        let bytes = self.source.as_os_str().as_bytes();
        match bytes.strip_prefix(b"flash:") {
            None => &self.source,
            Some(rest) => {
                let end = rest.iter().position(|b| *b == b'?').unwrap_or(rest.len());
                Path::new(std::ffi::OsStr::from_bytes(&rest[..end]))
            }
        }
    }
}

/// All mounts that a process sees, the later ones last; `None`: this process.
pub fn mounts(of: Option<u32>) -> io::Result<Vec<MountEntry>> {
    let of = of.map_or("self".to_owned(), |pid| pid.to_string());
    let list = std::fs::read(format!("/proc/{of}/mountinfo"))?;
    Ok(list.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut place = fields.by_ref().skip(2);
    let (device, on, how) = (place.next()?, place.nth(1)?, place.next()?);
    let mut what = fields.skip_while(|field| *field != b"-").skip(1);
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let (kind, source, options) = (what.next()?, what.next()?, what.next().unwrap_or_default());
    let device = text(device);
    let (major, minor) = device.split_once(':')?;
    Some(MountEntry {
        on: unescape(on),
        kind: text(kind),
        source: unescape(source),
        device: (major.parse().ok()?, minor.parse().ok()?),
        read_only: how.split(|byte| *byte == b',').any(|option| option == b"ro"),
        owner: owner(&text(options)),
    })
}

/// Whom the options of a FUSE mount let in, where that is not everyone.
fn owner(options: &str) -> Option<(u32, u32)> {
    let value = |name: &str| options.split(',').find_map(|option| option.strip_prefix(name)?.parse().ok());
    let is_for_all = options.split(',').any(|option| option == "allow_other");
    Some((value("user_id=")?, value("group_id=")?)).filter(|_| !is_for_all)
}

/// Undoes the octal escapes (`\040`) of the list. Names need not be UTF-8.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo() {
        let line = "45 28 0:61 / /mnt/with\\040space rw,relatime shared:1 - fuse.medfs /a\\134b\\043.img rw,user_id=0";
        let entry = parse(line.as_bytes()).unwrap();
        assert_eq!((entry.on.to_str(), entry.source.to_str()), (Some("/mnt/with space"), Some("/a\\b#.img")));
        assert_eq!((entry.device, entry.is_medfs(), entry.read_only), ((0, 61), true, false));
        assert!(parse(b"45 28 0:61 / /mnt nosuid,ro - fuse.medfs /a rw").unwrap().read_only);
        let entry = parse(b"45 28 7:2 / /mnt rw - fuseblk.medfs /dev/loop2 rw").unwrap();
        assert_eq!((entry.device, entry.is_medfs()), ((7, 2), true));
        assert!(!parse(b"45 28 7:2 / /mnt rw - ext4 /dev/loop2 rw").unwrap().is_medfs());
        let owner =
            |options| parse(format!("45 28 0:61 / /m rw - fuse.medfs x {options}").as_bytes()).unwrap().owner;
        assert_eq!(owner("rw,user_id=1000,group_id=100"), Some((1000, 100)));
        assert_eq!(owner("rw,user_id=1000,group_id=100,default_permissions,allow_other"), None);
        assert_eq!(parse(b"cut short"), None);
        let name = parse(b"45 28 0:61 / /caf\xe9 rw - fuse.medfs x rw").unwrap().on;
        assert_eq!(name.as_os_str().as_encoded_bytes(), b"/caf\xe9");
    }

    #[test]
    fn the_file_of_a_source() {
        let path = |source: &str| {
            let (on, kind) = (PathBuf::new(), String::new());
            let entry =
                MountEntry { on, kind, source: source.into(), device: (0, 0), read_only: false, owner: None };
            entry.device_path().to_owned()
        };
        assert_eq!(path("/a/flash:b"), Path::new("/a/flash:b"));
        assert_eq!(path("flash:/a/b?ftl=pm"), Path::new("/a/b"));
        assert_eq!(path("flash:/a/b"), Path::new("/a/b"));
    }
}
