//! A file and memory behave alike under any sequence of operations, and the file keeps it after reopening.

use medfs_device::{BlockDevice, Cause, FileDevice, FileOptions, MemDevice, Temperature, WriteTag};
use medfs_format::Block;
use proptest::prelude::*;

const BLOCKS: u64 = 70;

#[derive(Debug, Clone)]
enum Op {
    Write { addr: u64, count: usize, byte: u8, fua: bool },
    Read { addr: u64, count: usize },
    Discard { addr: u64, count: u64 },
    Flush,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let addr = 0..BLOCKS + 2;
    prop_oneof![
        4 => (addr.clone(), 0..9usize, any::<u8>(), any::<bool>())
            .prop_map(|(addr, count, byte, fua)| Op::Write { addr, count, byte, fua }),
        4 => (addr.clone(), 0..40usize).prop_map(|(addr, count)| Op::Read { addr, count }),
        1 => (addr, 0..20u64).prop_map(|(addr, count)| Op::Discard { addr, count }),
        1 => Just(Op::Flush),
        1 => Just(Op::Reopen),
    ]
}

fn apply(dev: &dyn BlockDevice, op: &Op) -> Result<Vec<u8>, std::io::ErrorKind> {
    let mut read = Vec::new();
    let result = match *op {
        Op::Write { addr, count, byte, fua } => {
            let blocks: Vec<Block> = (0..count).map(|i| Block([byte.wrapping_add(i as u8); 4096])).collect();
            let tag = WriteTag { fua, ..WriteTag::new(Cause::Data, Temperature::Warm) };
            dev.write(addr, &blocks.iter().collect::<Vec<_>>(), tag)
        }
        Op::Read { addr, count } => {
            let mut blocks = vec![Block([0xaa; 4096]); count];
            let result = dev.read(addr, &mut blocks.iter_mut().collect::<Vec<_>>());
            if result.is_ok() {
                read = blocks.iter().flat_map(|block| block.0).collect();
            }
            result
        }
        // What a discarded block reads as is not defined: give it a value.
        Op::Discard { addr, count } => dev.discard(addr, count).and_then(|()| {
            let zeros = vec![Block::ZERO; count as usize];
            dev.write(addr, &zeros.iter().collect::<Vec<_>>(), WriteTag::new(Cause::Data, Temperature::Warm))
        }),
        Op::Flush => dev.flush(),
        Op::Reopen => Ok(()),
    };
    result.map(|()| read).map_err(|e| e.kind())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn file_and_memory_agree(direct: bool, ops in prop::collection::vec(op(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let options = FileOptions { direct, ..Default::default() };
        let mut file = FileDevice::create(&path, BLOCKS * 4096, options).unwrap();
        let mem = MemDevice::new(BLOCKS);
        for op in &ops {
            if let Op::Reopen = op {
                drop(file);
                file = FileDevice::open(&path, options).unwrap();
            }
            prop_assert_eq!(apply(&file, op), apply(&mem, op), "{:?}", op);
        }
        let all = Op::Read { addr: 0, count: BLOCKS as usize };
        prop_assert_eq!(apply(&file, &all), apply(&mem, &all));
    }
}
