//! Requests read from and answered on `/dev/fuse`.
//!
//! Each worker has its own clone of the descriptor (a request must be answered where it was read) and its own buffers,
//! whose pages cost memory only once they are used.

use super::{HEAD_SIZE, Handler, PAYLOAD_SIZE, Threads};
use crate::abi::OutHeader;
use crate::request::{Answer, Reply, Request};
use crate::worker_pool::WorkerPool;
use medfs_format::Block;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Weak};
use zerocopy::{FromZeros, IntoBytes};

/// Bytes of a reply's header.
const OUT_HEADER_SIZE: usize = size_of::<OutHeader>();
/// `FUSE_DEV_IOC_CLONE`.
const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);

/// Starts `workers` workers.
pub(crate) fn start(
    device: &Arc<File>,
    handler: &Arc<dyn Handler>,
    workers: usize,
    threads: &Threads,
) -> io::Result<()> {
    let pool = Arc::new_cyclic(|pool: &Weak<WorkerPool>| {
        let (pool, device, handler, threads) =
            (pool.clone(), device.clone(), handler.clone(), threads.clone());
        let spawn = move |_| {
            let pool = pool.upgrade().ok_or_else(|| io::Error::other("the session has ended"))?;
            spawn_worker(&device, handler.clone(), pool, &threads)
        };
        WorkerPool::new(workers, Box::new(spawn))
    });
    for _ in 0..workers {
        spawn_worker(device, handler.clone(), pool.clone(), threads)?;
    }
    Ok(())
}

fn spawn_worker(
    device: &File,
    handler: Arc<dyn Handler>,
    pool: Arc<WorkerPool>,
    threads: &Threads,
) -> io::Result<()> {
    let device = clone_device(device)?;
    threads.spawn("medfs-dev".into(), move || serve(device, &*handler, &pool))
}

/// Another descriptor of the same connection, with its own list of requests under way.
fn clone_device(device: &File) -> io::Result<File> {
    let clone = File::options().read(true).write(true).open("/dev/fuse")?;
    clone_ioctl(&clone, device.as_raw_fd() as u32)?;
    Ok(clone)
}

#[allow(unsafe_code)]
fn clone_ioctl(clone: &File, original: u32) -> io::Result<()> {
    // SAFETY: the operation reads one u32, the number of the descriptor to join; it stores nothing.
    unsafe { rustix::ioctl::ioctl(clone.as_fd(), rustix::ioctl::Setter::<CLONE, u32>::new(original)) }?;
    Ok(())
}

/// Serves requests until the connection ends.
fn serve(mut device: File, handler: &dyn Handler, pool: &WorkerPool) {
    let mut input = vec![0; HEAD_SIZE + PAYLOAD_SIZE];
    // Aligned, so that what is read from a file need not be copied.
    let Ok(mut output) = Block::new_vec_zeroed((HEAD_SIZE + PAYLOAD_SIZE) / size_of::<Block>()) else {
        tracing::error!("no memory for a worker's buffer");
        return;
    };
    let output = output.as_mut_slice().as_mut_bytes();
    loop {
        let len = match device.read(&mut input) {
            Ok(len) => len,
            Err(error) => match error.raw_os_error() {
                // ENOENT: the request was interrupted before it was read.
                Some(libc::EINTR | libc::EAGAIN | libc::ENOENT) => continue,
                Some(libc::ENODEV | libc::ECONNABORTED) => return,
                _ => {
                    tracing::error!(%error, "reading /dev/fuse failed");
                    return;
                }
            },
        };
        let Some(request) = Request::contiguous(&input[..len]) else {
            tracing::error!(len, "the kernel sent a request shorter than its header");
            continue;
        };
        let mut reply = Reply::new(&mut *output);
        let (error, len) = match super::serve(handler, pool, &request, &mut reply) {
            Answer::Reply => (0, reply.len()),
            Answer::Error(errno) => (-errno.0, 0),
            Answer::Silent => continue,
        };
        let header = OutHeader { len: (OUT_HEADER_SIZE + len) as u32, error, unique: request.header.unique };
        let reply = [IoSlice::new(header.as_bytes()), IoSlice::new(&output[..len])];
        if let Err(error) = device.write_vectored(&reply) {
            match error.raw_os_error() {
                // The request or the connection was aborted.
                Some(libc::ENOENT | libc::ENODEV | libc::ECONNABORTED) => {}
                _ => tracing::error!(%error, opcode = request.header.opcode, "the kernel refused a reply"),
            }
        }
    }
}
