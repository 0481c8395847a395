//! The device's file: header, write buffer, statistics, then what `nand_file.rs` describes.
//!
//! The header is TOML behind a magic, a length and a checksum, in the first 64 KiB; then 1 MiB for the write
//! buffer that the capacitor keeps, 1 MiB for statistics (JSON), each in two slots that are written in turn,
//! and the parts of the NAND. The file is sparse.

use crate::durable_file::{Disk, Kept, Slots};
use crate::error::{FlashError, Result};
use crate::nand_file::{BlockState, Places, STATE_BYTES};
use crate::profile::Profile;
use crate::stats::Stats;
use medfs_device::{Claim, Share};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// First bytes of the file; the format's version follows them.
pub const MAGIC: [u8; 15] = *b"medfs flash dev";
/// Of the format.
pub const VERSION: u8 = 3;
/// Bytes of the header, at the file's beginning.
pub const HEADER_BYTES: u64 = 64 << 10;
/// Bytes for the image of the write buffer, and for statistics.
pub const AREA_BYTES: u64 = 1 << 20;
/// Out-of-band bytes and pages begin at multiples of so many bytes.
pub const ALIGN: u64 = 1 << 16;

/// The description of a device in its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Seed of what differs from device to device: bad blocks, limits of wear.
    pub seed: u64,
    /// Blocks of the NAND.
    pub blocks: u32,
    /// Pages that the host sees.
    pub logical_pages: u32,
    /// Method it was made with.
    pub ftl: String,
    /// Compressor.
    pub codec: String,
    /// Whether pages have content.
    pub content: bool,
    /// The NAND and its controller.
    pub profile: Profile,
}

impl Header {
    pub(crate) fn places(&self) -> Places {
        let g = self.profile.geometry(self.blocks);
        let states = HEADER_BYTES + 2 * AREA_BYTES;
        let align = |at: u64| at.next_multiple_of(ALIGN);
        let spares = align(states + u64::from(g.blocks) * STATE_BYTES);
        let data = align(spares + g.pages() * u64::from(g.spare_bytes));
        Places {
            retained: HEADER_BYTES,
            retained_bytes: AREA_BYTES,
            stats: HEADER_BYTES + AREA_BYTES,
            stats_bytes: AREA_BYTES,
            states,
            spares,
            data,
            end: data + g.pages() * u64::from(g.page_bytes),
        }
    }
}

fn broken(path: &Path, what: impl Into<String>) -> FlashError {
    FlashError::Device(path.display().to_string(), what.into())
}

pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> FlashError {
    let path = path.display().to_string();
    move |e| FlashError::Io(path, e)
}

/// Makes the file of a new device, which must not exist.
pub(crate) fn create(path: &Path, header: &Header, states: &[BlockState]) -> Result<File> {
    let file = File::options().read(true).write(true).create_new(true).open(path).map_err(io(path))?;
    lock(&file, path, Duration::ZERO)?;
    let text = toml::to_string(header).map_err(|e| FlashError::Usage(e.to_string()))?;
    let mut bytes = MAGIC.to_vec();
    bytes.push(VERSION);
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(crc32fast::hash(text.as_bytes()).to_le_bytes());
    bytes.extend(text.as_bytes());
    if bytes.len() as u64 > HEADER_BYTES {
        return Err(FlashError::Usage("the profile's text is too long".into()));
    }
    let places = header.places();
    file.set_len(places.end).map_err(io(path))?;
    file.write_at(&bytes, 0).map_err(io(path))?;
    for (block, state) in states.iter().enumerate().filter(|(_, state)| state.bad) {
        file.write_at(&state.to_bytes(), places.states + block as u64 * STATE_BYTES).map_err(io(path))?;
    }
    Ok(file)
}

/// Claims the file for as long as it is open.
fn lock(file: &File, path: &Path, patience: Duration) -> Result<()> {
    // Nothing but the file is kept: a loop device on it shows no volume.
    Claim::take(path, file, Share::Nobody, patience).map(drop).map_err(FlashError::InUse)
}

/// A new file and its name survive the end of the machine.
pub(crate) fn settle(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(io(path))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io(folder))
}

/// Opens the file of a device, claimed, after at most `patience`; `None`: only to look at it, also while it is in use.
pub(crate) fn open(path: &Path, patience: Option<Duration>) -> Result<(File, Header)> {
    let file = File::options().read(true).write(patience.is_some()).open(path).map_err(io(path))?;
    if let Some(patience) = patience {
        lock(&file, path, patience)?;
    }
    let mut start = [0; 24];
    file.read_at(&mut start, 0).map_err(|_| broken(path, "too short for a flash device"))?;
    if start[..15] != MAGIC {
        return Err(broken(path, "not a flash device: make one with 'medfs flash create'"));
    }
    if start[15] != VERSION {
        let what = format!("its format is version {}; this medfs supports version {VERSION}", start[15]);
        return Err(broken(path, what));
    }
    let number = |at: usize| u32::from_le_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
    let length = u64::from(number(16));
    if length > HEADER_BYTES - 24 {
        return Err(broken(path, "the header is damaged: its length is impossible"));
    }
    let mut text = vec![0; length as usize];
    file.read_at(&mut text, 24).map_err(|_| broken(path, "cut short in the header"))?;
    if crc32fast::hash(&text) != number(20) {
        return Err(broken(path, "the header is damaged: its checksum is wrong"));
    }
    let text = String::from_utf8_lossy(&text);
    let header: Header = toml::from_str(&text)
        .map_err(|e| broken(path, format!("made by another version of medfs: {}", e.message())))?;
    check(path, &file, &header)?;
    Ok((file, header))
}

fn check(path: &Path, file: &File, header: &Header) -> Result<()> {
    let profile = toml::to_string(&header.profile).map_err(|e| broken(path, e.to_string()))?;
    Profile::parse(&profile).map_err(|e| broken(path, format!("its profile is invalid: {e}")))?;
    let g = header.profile.geometry(header.blocks);
    if header.blocks == 0 || g.pages() >= u64::from(u32::MAX) {
        return Err(broken(path, format!("a device cannot have {} blocks", header.blocks)));
    }
    if u64::from(header.logical_pages) * 4096 > g.pages() * u64::from(g.page_bytes) {
        return Err(broken(
            path,
            format!("{} pages do not fit its {} blocks", header.logical_pages, header.blocks),
        ));
    }
    let (is, wanted) = (file.metadata().map_err(io(path))?.len(), header.places().end);
    if is != wanted {
        let how = if is < wanted { "cut short" } else { "too long" };
        return Err(broken(path, format!("{how}: {is} bytes, but its geometry needs {wanted}")));
    }
    Ok(())
}

/// The states of all blocks.
pub(crate) fn states(path: &Path, file: &File, header: &Header) -> Result<Vec<BlockState>> {
    let mut bytes = vec![0; (u64::from(header.blocks) * STATE_BYTES) as usize];
    file.read_at(&mut bytes, header.places().states).map_err(io(path))?;
    let states: Vec<BlockState> = bytes.chunks_exact(8).map(BlockState::unpack).collect();
    let most = header.profile.geometry.pages_per_block;
    match states.iter().position(|s| u32::from(s.written) > most) {
        Some(block) => Err(broken(path, format!("the state of block {block} is damaged"))),
        None => Ok(states),
    }
}

/// The image of the write buffer; nothing where none was kept. Its reader checks what it says.
pub(crate) fn read_image(path: &Path, file: &File, header: &Header) -> Result<Vec<u8>> {
    let places = header.places();
    match Slots::new(places.retained, places.retained_bytes).read(file).map_err(io(path))? {
        Kept::Whole(image) => Ok(image),
        Kept::Nothing => Ok(Vec::new()),
        Kept::Damaged => Err(broken(path, "the image of its write buffer is damaged")),
    }
}

fn stats_slots(header: &Header) -> Slots {
    Slots::new(header.places().stats, header.places().stats_bytes)
}

pub(crate) fn write_stats(path: &Path, file: &File, header: &Header, stats: &Stats) -> Result<()> {
    let text = serde_json::to_vec(stats).map_err(|e| broken(path, e.to_string()))?;
    stats_slots(header).write(file, &text).map_err(io(path))
}

pub(crate) fn read_stats(path: &Path, file: &File, header: &Header) -> Result<Stats> {
    match stats_slots(header).read(file).map_err(io(path))? {
        Kept::Nothing => Ok(Stats::default()),
        Kept::Whole(text) => serde_json::from_slice(&text)
            .map_err(|e| broken(path, format!("its statistics are damaged: {e}"))),
        Kept::Damaged => Err(broken(path, "its statistics are damaged: their checksum is wrong")),
    }
}

/// Of each block how often it was erased, and whether it is bad.
pub type Wear = Vec<(u32, bool)>;

/// Reads the description of a device, also while it is in use: that never changes.
///
/// # Errors
/// No device, or damaged.
pub fn header_of(path: &Path) -> Result<Header> {
    Ok(open(path, None)?.1)
}

/// What a device's file says of it, without opening it as a device: also while it is in use, when the numbers
/// are some moments old.
///
/// # Errors
/// No device, or damaged.
pub fn stats_of(path: &Path) -> Result<(Header, Stats, Wear)> {
    let (file, header) = open(path, None)?;
    let stats = read_stats(path, &file, &header)?;
    let states = states(path, &file, &header)?;
    Ok((header, stats, states.iter().map(|s| (s.erases, s.bad)).collect()))
}
