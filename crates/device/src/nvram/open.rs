//! Which kind of non-volatile memory a path leads to, and what keeps it from being one.
//!
//! | what | how it is reached |
//! |---|---|
//! | a file on a DAX file system, a DAX device | mapped; cache lines are written back |
//! | a UIO device (its first area), a part of `/dev/mem` | mapped, uncached, in words |
//! | another file, a block device, an MTD device of RAM, an nvmem device | written through, in whole sectors |
//!
//! The kernel's documents: `filesystems/dax`, `driver-api/uio-howto`, `driver-api/mtd`, `driver-api/nvmem`.

use super::file::FileNvram;
use super::mapped::{self, MappedNvram, Order, UNCACHED};
use super::{LINE, Nvram};
use crate::{Claim, Share};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// `f_type` of file systems that forget everything with the power, and their names.
const VOLATILE: [(i64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];
/// `f_type` of /sys.
const SYSFS: i64 = 0x6265_6572;
/// Bytes of a sector of a file's disk.
const SECTOR: u64 = 512;
/// Number of `/dev/mem`.
const DEV_MEM: (u32, u32) = (1, 1);

/// What a memory is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NvramAccess {
    /// Nothing will be written.
    pub read_only: bool,
    /// It may be one that power loss empties: to test, or where what lies there may be lost.
    pub volatile: bool,
}

/// Opens `size` bytes from `offset` on, or all behind it, of a memory of any kind. `InvalidInput` where the path leads
/// to none, or to one that power loss empties; `ResourceBusy` where it is in use.
pub fn open_nvram(
    path: &Path,
    offset: u64,
    size: Option<u64>,
    access: NvramAccess,
) -> io::Result<Arc<dyn Nvram>> {
    let mut opened = Opened::open(path, access)?;
    let kind = opened.kind(Path::new("/sys"))?;
    Ok(match kind.way {
        Way::Through { sector } => {
            let (offset, size) = opened.take_part((offset, size), kind.bytes, sector)?;
            Arc::new(FileNvram::of(opened, (offset, size), sector))
        }
        Way::Mapped { page, order, skips } => {
            let (offset, size) = opened.take_part((offset, size), kind.bytes, LINE)?;
            opened.check_memory((offset, size))?;
            Arc::new(MappedNvram::of(opened, (skips + offset, size), (page, order))?)
        }
    })
}

/// A kind of memory: its size, where it has one, and how it is reached.
#[derive(Debug, PartialEq)]
struct Kind {
    bytes: Option<u64>,
    way: Way,
}

#[derive(Debug, PartialEq)]
enum Way {
    /// Written through in sectors of so many bytes.
    Through { sector: u64 },
    /// Mapped in pages of so many bytes, of which the first `skips` bytes are none of it.
    Mapped { page: u64, order: Order, skips: u64 },
}

/// What is open, and claimed ([`crate::claim`]) until it is dropped.
#[derive(Debug)]
pub(super) struct Opened {
    file: File,
    _claim: Claim,
    path: PathBuf,
    /// Offset and size in bytes, where only a part of it is used.
    part: Option<(u64, u64)>,
    stat: Stat,
    access: NvramAccess,
}

impl Opened {
    /// Opens and claims a path.
    pub(super) fn open(path: &Path, access: NvramAccess) -> io::Result<Opened> {
        let named = |e: rustix::io::Errno| {
            let e = io::Error::from(e);
            io::Error::new(e.kind(), format!("{}: {e}", path.display()))
        };
        let mode = if access.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | UNCACHED | mode;
        let fd: OwnedFd = rustix::fs::open(path, flags, Mode::empty()).map_err(named)?;
        let stat = rustix::fs::fstat(&fd).map_err(named)?;
        let share = if access.read_only { Share::Readers } else { Share::Nobody };
        let claim = Claim::take(path, &fd, share, Duration::ZERO)?;
        Ok(Opened { file: fd.into(), _claim: claim, path: path.to_owned(), part: None, stat, access })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// As `nvram=` names it.
    pub(super) fn name(&self) -> String {
        match self.part {
            Some((offset, size)) => format!("{}@{offset}+{size}", self.path.display()),
            None => self.path.display().to_string(),
        }
    }

    pub(super) fn writes(&self) -> bool {
        !self.access.read_only
    }

    /// Whether it is a file, and no device.
    pub(super) fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::RegularFile
    }

    /// The number of a device.
    fn number(&self) -> (u32, u32) {
        (rustix::fs::major(self.stat.st_rdev), rustix::fs::minor(self.stat.st_rdev))
    }

    /// That it cannot serve.
    pub(super) fn refused(&self, why: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", self.path.display()))
    }

    /// An error of the system, with the path.
    pub(super) fn explain(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }

    /// Which kind it is. `sys`: where the kernel shows its devices.
    fn kind(&self, sys: &Path) -> io::Result<Kind> {
        let number = self.number();
        let folder = |of: &str| sys.join("dev").join(of).join(format!("{}:{}", number.0, number.1));
        match FileType::from_raw_mode(self.stat.st_mode) {
            FileType::RegularFile => self.kind_of_file(),
            FileType::BlockDevice => self.kind_of_disk(&folder("block")),
            FileType::CharacterDevice if number == DEV_MEM => {
                Ok(Kind { bytes: None, way: Way::Mapped { page: page(), order: Order::Words, skips: 0 } })
            }
            FileType::CharacterDevice => self.kind_of_device(&folder("char")),
            _ => Err(self.refused("neither a file nor a device")),
        }
    }

    fn kind_of_file(&self) -> io::Result<Kind> {
        let bytes = self.stat.st_size as u64;
        let system = rustix::fs::fstatfs(&self.file).map_err(|e| self.explain(e.into()))?.f_type as i64;
        if system == SYSFS {
            return self.kind_of_nvmem(bytes);
        }
        if let Some((_, name)) = VOLATILE.iter().find(|(magic, _)| *magic == system) {
            self.check_volatile(&format!("files on {name} do"))?;
        } else if mapped::can_write_back() && bytes >= page() && mapped::is_dax(&self.file) {
            let way = Way::Mapped { page: page(), order: Order::Lines, skips: 0 };
            return Ok(Kind { bytes: Some(bytes), way });
        }
        Ok(Kind { bytes: Some(bytes), way: Way::Through { sector: SECTOR } })
    }

    /// A small memory on a bus: FRAM, or RAM with a battery.
    fn kind_of_nvmem(&self, bytes: u64) -> io::Result<Kind> {
        let path = self.path.canonicalize()?;
        if path.file_name().is_none_or(|name| name != "nvmem") {
            return Err(self.refused("a file of sysfs, but no nvmem device"));
        }
        let kind = read(&path.with_file_name("type")).unwrap_or_default();
        if ["EEPROM", "OTP"].contains(&kind.as_str()) {
            let why = format!("an nvmem device of type {kind}, which journals would wear out");
            return Err(self.refused(&why));
        }
        Ok(Kind { bytes: Some(bytes), way: Way::Through { sector: LINE } })
    }

    fn kind_of_disk(&self, folder: &Path) -> io::Result<Kind> {
        let name = folder.canonicalize().unwrap_or_default();
        let name = name.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with("ram") || name.starts_with("zram") {
            self.check_volatile(&format!("the RAM disk {name} does"))?;
        }
        let end = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0));
        let end = end.map_err(|e| self.explain(e.into()))?;
        // What the disk writes as a whole, where it tells.
        let sector = rustix::fs::ioctl_blksszget(&self.file).map_err(|e| self.explain(e.into()))?;
        let physical = rustix::fs::ioctl_blkpbszget(&self.file).unwrap_or(sector);
        let sector = u64::from(sector.max(physical).min(4096)).max(SECTOR);
        Ok(Kind { bytes: Some(end), way: Way::Through { sector } })
    }

    /// A character device, by the subsystem that it is of.
    fn kind_of_device(&self, folder: &Path) -> io::Result<Kind> {
        let subsystem = folder.join("subsystem").canonicalize().unwrap_or_default();
        let number = |name: &str| read(&folder.join(name)).and_then(|text| parsed(&text));
        match subsystem.file_name().and_then(|name| name.to_str()) {
            Some("dax") if mapped::can_write_back() => {
                let page = number("align").filter(|align| align.is_power_of_two()).unwrap_or(2 << 20);
                let way = Way::Mapped { page: page.max(self::page()), order: Order::Lines, skips: 0 };
                Ok(Kind { bytes: number("size"), way })
            }
            Some("dax") => Err(self.refused("this processor cannot write cache lines back to a memory")),
            Some("uio") => {
                let skips = number("maps/map0/offset").unwrap_or(0);
                let Some(bytes) = number("maps/map0/size").filter(|bytes| *bytes > 0) else {
                    return Err(self.refused("a UIO device without an area of memory"));
                };
                let way = Way::Mapped { page: page(), order: Order::Words, skips };
                Ok(Kind { bytes: Some(bytes.saturating_sub(skips)), way })
            }
            Some("mtd") => self.kind_of_mtd(folder),
            _ => Err(self.refused("a character device, but no memory")),
        }
    }

    fn kind_of_mtd(&self, folder: &Path) -> io::Result<Kind> {
        let text = |name: &str| read(&folder.join(name)).unwrap_or_default();
        let kind = text("type");
        if kind != "ram" {
            let why =
                format!("an MTD device of type {kind}, and not RAM, which takes bytes without being erased");
            return Err(self.refused(&why));
        }
        if text("name").contains("mtdram") {
            self.check_volatile("the kernel's test device mtdram does")?;
        }
        let sector = parsed(&text("writesize")).unwrap_or(1).max(LINE);
        Ok(Kind { bytes: parsed(&text("size")), way: Way::Through { sector } })
    }

    /// Refuses what power loss empties, where that is not asked for. `what`: its subject, and "do" or "does".
    fn check_volatile(&self, what: &str) -> io::Result<()> {
        match self.access.volatile {
            true => Ok(()),
            false => Err(self.refused(&format!(
                "{what} not survive a power cut; nvram_volatile, or --volatile, accepts that"
            ))),
        }
    }

    /// Takes a part of a memory of so many bytes, in whole sectors.
    fn take_part(
        &mut self,
        (offset, size): (u64, Option<u64>),
        whole: Option<u64>,
        sector: u64,
    ) -> io::Result<(u64, u64)> {
        let part = self.part((offset, size), whole, sector)?;
        self.part = (offset > 0 || size.is_some()).then_some(part);
        Ok(part)
    }

    fn part(
        &self,
        (offset, size): (u64, Option<u64>),
        whole: Option<u64>,
        sector: u64,
    ) -> io::Result<(u64, u64)> {
        if !offset.is_multiple_of(sector) {
            return Err(self.refused(&format!("the offset {offset} is not a multiple of {sector} bytes")));
        }
        let Some(whole) = whole else {
            let size = size.filter(|size| offset.checked_add(*size).is_some());
            let part = size.map(|size| (offset, size / sector * sector));
            return part.ok_or_else(|| self.refused("name a part of it as PATH@OFFSET+SIZE"));
        };
        let Some(behind) = whole.checked_sub(offset) else {
            return Err(self.refused(&format!("has {whole} bytes, and none at {offset}")));
        };
        let size = size.unwrap_or(behind);
        if size > behind {
            return Err(self.refused(&format!("has {behind} bytes from {offset} on, and not {size}")));
        }
        Ok((offset, size / sector * sector))
    }

    /// Refuses a part of `/dev/mem` that the kernel uses as its own memory.
    fn check_memory(&self, (offset, size): (u64, u64)) -> io::Result<()> {
        if self.is_file() || self.number() != DEV_MEM {
            return Ok(());
        }
        let areas = std::fs::read_to_string("/proc/iomem").map_err(|e| self.explain(e))?;
        match overlaps_ram(&areas, offset, size) {
            true => Err(self.refused("this part is the machine's RAM, which the kernel uses")),
            false => Ok(()),
        }
    }
}

/// Whether a part of the physical memory is RAM, by the text of /proc/iomem.
fn overlaps_ram(areas: &str, offset: u64, size: u64) -> bool {
    let address = |text: &str| u64::from_str_radix(text.trim(), 16).ok();
    areas.lines().any(|line| {
        let Some((range, what)) = line.split_once(" : ") else { return false };
        let Some((first, last)) = range.split_once('-') else { return false };
        let (Some(first), Some(last)) = (address(first), address(last)) else { return false };
        what.trim() == "System RAM" && first < offset.saturating_add(size) && offset <= last
    })
}

fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// The text of a file of sysfs.
fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// A number of sysfs, decimal or with 0x.
fn parsed(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const VOLATILE: NvramAccess = NvramAccess { read_only: false, volatile: true };

    fn opened(path: &str, access: NvramAccess) -> Opened {
        Opened::open(Path::new(path), access).unwrap()
    }

    /// A tree like /sys in which /dev/null is a device of a subsystem, with files of its folder.
    fn sys(subsystem: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let (class, folder) = (sys.path().join("class").join(subsystem), sys.path().join("dev/char/1:3"));
        fs::create_dir_all(&class).unwrap();
        fs::create_dir_all(folder.join("maps/map0")).unwrap();
        symlink(&class, folder.join("subsystem")).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), format!("{text}\n")).unwrap();
        }
        sys
    }

    #[test]
    fn devices_are_known_by_their_subsystem() {
        let null = opened("/dev/null", NvramAccess::default());
        let kind = |subsystem, files: &[_]| null.kind(sys(subsystem, files).path());
        let map0 = [("maps/map0/size", "0x8000"), ("maps/map0/offset", "0x40")];
        let uio = Kind {
            bytes: Some(0x8000 - 0x40),
            way: Way::Mapped { page: page(), order: Order::Words, skips: 0x40 },
        };
        assert_eq!(kind("uio", &map0).unwrap(), uio);
        let ram = [("type", "ram"), ("size", "1048576"), ("writesize", "1"), ("name", "fram")];
        let mtd = Kind { bytes: Some(1 << 20), way: Way::Through { sector: LINE } };
        assert_eq!(kind("mtd", &ram).unwrap(), mtd);
        if mapped::can_write_back() {
            let dax = Kind {
                bytes: Some(16 << 20),
                way: Way::Mapped { page: 2 << 20, order: Order::Lines, skips: 0 },
            };
            assert_eq!(kind("dax", &[("size", "16777216"), ("align", "2097152")]).unwrap(), dax);
        }
        let refused = |subsystem, files: &[_]| kind(subsystem, files).unwrap_err().to_string();
        assert!(refused("mtd", &[("type", "nor")]).contains("of type nor"));
        let test = [("type", "ram"), ("name", "mtdram test device")];
        assert!(refused("mtd", &test).contains("mtdram does not survive"));
        assert!(refused("uio", &[]).contains("without an area"));
        assert!(refused("mem", &[]).contains("no memory"));
    }

    #[test]
    fn a_part_of_the_physical_memory_is_named_and_no_ram() {
        if !Path::new("/dev/mem").exists() {
            return;
        }
        let refused =
            |size| open_nvram(Path::new("/dev/mem"), 0, size, VOLATILE).err().map(|e| e.to_string());
        // Not even root may open it everywhere.
        assert!(refused(None).is_some());
        let areas = "00001000-0009fbff : System RAM\n000a0000-000bffff : PCI Bus\n00100000-bfffffff : System RAM\n  01000000-01ffffff : Kernel code\nc0000000-c0ffffff : Persistent Memory (legacy)\n";
        for (offset, size, is_ram) in [
            (0, 0x1000, false),
            (0x800, 0x1000, true),
            (0xa0000, 0x20000, false),
            (0xbfff_f000, 0x1000, true),
            (0xc000_0000, 0x10_0000, false),
        ] {
            assert_eq!(overlaps_ram(areas, offset, size), is_ram, "{offset:x}");
        }
    }

    #[test]
    fn what_power_loss_empties_needs_a_word() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
        let path = dir.path().join("nvram");
        fs::write(&path, [0; 8192]).unwrap();
        let refused = open_nvram(&path, 0, None, NvramAccess::default()).err().unwrap().to_string();
        assert!(refused.contains(
            "files on tmpfs do not survive a power cut; nvram_volatile, or --volatile, accepts that"
        ));
        let nvram = open_nvram(&path, 0, None, VOLATILE).unwrap();
        nvram.write(100, b"kept").unwrap();
        nvram.persist(100, 4).unwrap();
        drop(nvram);
        assert_eq!(&fs::read(&path).unwrap()[100..104], b"kept");
    }

    #[test]
    fn what_is_no_memory_is_refused_by_name() {
        let refused = |path: &str| {
            open_nvram(Path::new(path), 0, None, NvramAccess { read_only: true, volatile: true })
                .err()
                .map(|e| e.to_string())
                .unwrap_or_default()
        };
        assert!(refused("/dev/null").contains("/dev/null: a character device, but no memory"));
        assert!(refused("/sys/kernel/uevent_seqnum").contains("no nvmem device"));
        assert!(refused("/tmp").contains("neither a file nor a device"));
    }
}
