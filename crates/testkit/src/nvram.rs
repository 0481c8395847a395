//! A volume and its NVRAM on one recorded device: what a crash leaves of both comes from one log, so that
//! each order of flushes of the one and fences of the other is explored.
//!
//! The memory is the last blocks of the device, behind the volume. What is written to it is pending as other
//! blocks are; a fence makes its range durable alone, as a write with forced unit access does. A flush of the
//! volume would make durable what was written to the memory before; without a fence of its own nothing may
//! rely on that, and states in which power is lost before it show it.

use crate::subject::Mounter;
use medfs::{Clock, ManualClock, MountOptions, open_with_nvram};
use medfs_device::crash::TornFilter;
use medfs_device::{BlockDevice, Cause, MemDevice, Nvram, Temperature, WriteTag, read_block};
use medfs_format::{BLOCK_SIZE, Block};
use std::io;
use std::sync::Arc;

/// Bytes of the memory: as few as there may be, so that it becomes full.
pub const NVRAM_BYTES: u64 = 64 << 10;
const BLOCKS: u64 = NVRAM_BYTES / BLOCK_SIZE as u64;

const TAG: WriteTag = WriteTag::new(Cause::Meta, Temperature::Hot);

/// The image with room for a memory behind it.
pub fn with_room(image: &MemDevice) -> MemDevice {
    let larger = MemDevice::new(image.block_count() + BLOCKS);
    for addr in image.written() {
        let block = read_block(image, addr).expect("memory");
        larger.write(addr, &[&block], TAG).expect("memory");
    }
    larger
}

/// Blocks that may be torn: those of the memory, and those of the volume that `volume` says.
pub fn torn(blocks: u64, volume: TornFilter) -> TornFilter {
    Arc::new(move |addr, cause, content| addr >= blocks - BLOCKS || volume(addr, cause, content))
}

/// A mounter of volumes whose NVRAM lies behind them.
pub fn mounter_with_nvram(options: MountOptions, clock: Arc<ManualClock>) -> Mounter {
    Arc::new(move |device| {
        let clock: Arc<dyn Clock> = clock.clone();
        let memory = Arc::new(Behind { device: device.clone() });
        Ok(Arc::new(open_with_nvram(device, memory, options.clone(), clock)?))
    })
}

/// The last blocks of a device as a memory.
struct Behind {
    device: Arc<dyn BlockDevice>,
}

impl Behind {
    /// The blocks that bytes lie in, with the address of the first.
    fn blocks(&self, offset: u64, len: u64) -> io::Result<(u64, Vec<Block>)> {
        if offset + len > NVRAM_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (first, end) = (offset / BLOCK_SIZE as u64, (offset + len).div_ceil(BLOCK_SIZE as u64));
        let addr = self.device.block_count() - BLOCKS + first;
        let mut blocks = vec![Block::ZERO; (end - first) as usize];
        self.device.read(addr, &mut blocks.iter_mut().collect::<Vec<_>>())?;
        Ok((addr, blocks))
    }
}

impl Nvram for Behind {
    fn size(&self) -> u64 {
        NVRAM_BYTES
    }
    fn unit(&self) -> u64 {
        64
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let (_, blocks) = self.blocks(offset, bytes.len() as u64)?;
        let within = (offset % BLOCK_SIZE as u64) as usize;
        let all: Vec<u8> = blocks.iter().flat_map(|block| block.0).collect();
        bytes.copy_from_slice(&all[within..within + bytes.len()]);
        Ok(())
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (addr, mut blocks) = self.blocks(offset, bytes.len() as u64)?;
        for (at, &byte) in ((offset % BLOCK_SIZE as u64) as usize..).zip(bytes) {
            blocks[at / BLOCK_SIZE].0[at % BLOCK_SIZE] = byte;
        }
        self.device.write(addr, &blocks.iter().collect::<Vec<_>>(), TAG)
    }
    fn persist(&self, offset: u64, len: u64) -> io::Result<()> {
        let (addr, blocks) = self.blocks(offset, len)?;
        self.device.write(addr, &blocks.iter().collect::<Vec<_>>(), TAG.with_fua())
    }
    fn name(&self) -> String {
        "behind the volume".into()
    }
}
