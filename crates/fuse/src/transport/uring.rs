//! Requests over io_uring (Linux 6.14, `enable_uring` of the fuse module).
//!
//! The kernel keeps one queue for each possible CPU and gives a request to the queue of the CPU it was made
//! on. Here each CPU that is online has workers bound to it, each with its own ring and one entry, so that no
//! request waits behind another that blocks; the queues of all other CPUs share one worker, because the
//! kernel asks that every queue be served. A reply and the wait for the next request are one system call.
//! FORGET and notifications still go through `/dev/fuse`.
//!
//! A worker that joins later ([`crate::worker_pool`]) needs a kick: the kernel gives a new entry no request
//! that is already waiting, only the next one that is made. So once the new entry is registered a request
//! that means nothing is provoked on the same CPU; serving it makes the new worker fetch what waits.
//!
//! An entry is a header and a payload buffer whose addresses the kernel keeps. It writes to them only between our
//! submission of a command and that command's completion; between completion and the next submission they are ours.

use super::{HEAD_SIZE, Handler, PAYLOAD_SIZE, Threads};
use crate::abi::{InHeader, OutHeader, UringCmdReq, UringReqHeader, uring_cmd};
use crate::connection;
use crate::notify::Notifier;
use crate::request::{Answer, Reply, Request};
use crate::worker_pool::WorkerPool;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use medfs_format::Block;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak, mpsc};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

type Ring = IoUring<Entry128, cqueue::Entry>;

/// Replies other than READ and its like fit here: an xattr is the largest.
const SCRATCH_SIZE: usize = (64 << 10) + HEAD_SIZE;

/// The queues of a connection and who serves them.
pub(crate) struct Plan {
    /// For each worker the CPU it is bound to and the queues it serves.
    crews: Vec<(Option<usize>, Vec<u16>)>,
    workers_per_cpu: usize,
}

impl Plan {
    /// Plans for this machine and checks that rings can be had, before the kernel is told to use them.
    pub(crate) fn new(threads: usize) -> io::Result<Plan> {
        let possible = cpu_list("/sys/devices/system/cpu/possible")?;
        let online = cpu_list("/sys/devices/system/cpu/online")?;
        // The kernel counts queues by the number of possible CPUs and indexes them by CPU number.
        let (own, shared): (Vec<usize>, Vec<usize>) =
            (0..possible.len()).partition(|cpu| online.contains(cpu));
        let mut crews: Vec<_> = own.into_iter().map(|cpu| (Some(cpu), vec![cpu as u16])).collect();
        if !shared.is_empty() {
            crews.push((None, shared.into_iter().map(|cpu| cpu as u16).collect()));
        }
        new_ring(1)?;
        Ok(Plan { crews, workers_per_cpu: if threads == 0 { 4 } else { threads } })
    }

    /// Starts the workers and registers their entries; returns when the kernel has them all.
    pub(crate) fn start(
        self,
        device: &Arc<File>,
        handler: &Arc<dyn Handler>,
        threads: &Threads,
    ) -> io::Result<()> {
        let (started, done) = mpsc::channel();
        let mut expected = 0;
        for (cpu, queues) in self.crews {
            let workers = if cpu.is_some() { self.workers_per_cpu } else { 1 };
            let pool = Arc::new_cyclic(|pool: &Weak<WorkerPool>| {
                let (pool, device, handler) = (pool.clone(), device.clone(), handler.clone());
                let (threads, queues) = (threads.clone(), queues.clone());
                let spawn = move |nodeid| {
                    let pool = pool.upgrade().ok_or_else(|| io::Error::other("the session has ended"))?;
                    let (started, done) = mpsc::channel();
                    spawn_worker(cpu, &queues, &device, &handler, &pool, &threads, started)?;
                    done.recv().map_err(io::Error::other)??;
                    Notifier::new(device.clone())
                        .kick(nodeid)
                        .map_err(|errno| io::Error::from_raw_os_error(errno.0))
                };
                WorkerPool::new(workers, Box::new(spawn))
            });
            for _ in 0..workers {
                spawn_worker(cpu, &queues, device, handler, &pool, threads, started.clone())?;
                expected += 1;
            }
        }
        drop(started);
        for _ in 0..expected {
            done.recv().map_err(|_| io::Error::other("a worker ended before it began"))??;
        }
        Ok(())
    }
}

/// Numbers in a list like `0-3,8`.
fn cpu_list(path: &str) -> io::Result<Vec<usize>> {
    parse_cpu_list(std::fs::read_to_string(path)?.trim())
        .ok_or_else(|| io::Error::other(format!("{path} is not a list of CPUs")))
}

fn parse_cpu_list(list: &str) -> Option<Vec<usize>> {
    const CPUS_MAX: usize = 1 << 13;
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

fn new_ring(entries: usize) -> io::Result<Ring> {
    let entries = u32::try_from(entries.next_power_of_two()).map_err(io::Error::other)?;
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries)
}

fn spawn_worker(
    cpu: Option<usize>,
    queues: &[u16],
    device: &Arc<File>,
    handler: &Arc<dyn Handler>,
    pool: &Arc<WorkerPool>,
    threads: &Threads,
    started: mpsc::Sender<io::Result<()>>,
) -> io::Result<()> {
    let name = cpu.map_or_else(|| "medfs-ring".into(), |cpu| format!("medfs-ring{cpu}"));
    let (queues, device, handler, pool) = (queues.to_vec(), device.clone(), handler.clone(), pool.clone());
    threads.spawn(name, move || {
        if let Some(cpu) = cpu {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu);
            // Where this is not allowed the worker runs anywhere: slower, not wrong.
            let _ = rustix::thread::sched_setaffinity(None, &set);
        }
        match Worker::register(&device, &queues) {
            Ok(worker) => {
                let _ = started.send(Ok(()));
                drop(started);
                worker.serve(&*handler, &pool);
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        }
    })
}

/// One entry of a queue.
struct Slot {
    queue: u16,
    header: Box<UringReqHeader>,
    payload: Vec<Block>,
    /// Where header and payload are, as the kernel is told at registration.
    iovecs: Box<[libc::iovec; 2]>,
    /// The kernel holds the addresses.
    registered: bool,
}

impl Slot {
    fn new(queue: u16) -> io::Result<Slot> {
        let mut header = UringReqHeader::new_box_zeroed().map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut payload = Block::new_vec_zeroed(PAYLOAD_SIZE / size_of::<Block>())
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        let iovecs = Box::new([
            libc::iovec { iov_base: (&raw mut *header).cast(), iov_len: size_of::<UringReqHeader>() },
            libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: PAYLOAD_SIZE },
        ]);
        Ok(Slot { queue, header, payload, iovecs, registered: false })
    }
}

/// A thread's ring and entries.
struct Worker {
    ring: Ring,
    slots: Vec<Slot>,
    /// Completions not yet dealt with: which slot, and the result.
    completed: Vec<(usize, i32)>,
    fd: types::Fd,
    /// Keeps the descriptor behind `fd` open.
    _device: Arc<File>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // An entry whose command has not completed may still be written to while the ring is torn down, which
        // the kernel does in its own time: its memory is given up.
        for slot in std::mem::take(&mut self.slots) {
            if slot.registered {
                std::mem::forget(slot);
            }
        }
    }
}

impl Worker {
    /// Makes a ring and registers one entry for each queue.
    fn register(device: &Arc<File>, queues: &[u16]) -> io::Result<Worker> {
        let ring = new_ring(queues.len())?;
        let slots = queues.iter().map(|&queue| Slot::new(queue)).collect::<io::Result<Vec<_>>>()?;
        let fd = types::Fd(device.as_raw_fd());
        let mut worker = Worker { ring, slots, completed: Vec::new(), fd, _device: device.clone() };
        for index in 0..worker.slots.len() {
            worker.submit(index, uring_cmd::REGISTER, 0)?;
        }
        worker.ring.submit()?;
        // A refused registration completes at once; so may one whose first request is already there.
        worker.collect();
        match worker.completed.iter().find(|(_, result)| *result < 0) {
            Some((_, result)) => Err(io::Error::from_raw_os_error(-result)),
            // An end that came before the kernel had the entries does not complete them: nobody would wake us.
            None if connection::has_ended(device) => Err(io::ErrorKind::NotConnected.into()),
            None => Ok(worker),
        }
    }

    /// Takes the completions that are there.
    fn collect(&mut self) {
        let slots = &mut self.slots;
        self.completed.extend(self.ring.completion().filter_map(|entry| {
            let index = entry.user_data() as usize;
            slots.get_mut(index)?.registered = false;
            Some((index, entry.result()))
        }));
    }

    /// Queues a command for an entry.
    fn submit(&mut self, index: usize, command: u32, commit_id: u64) -> io::Result<()> {
        let slot = &mut self.slots[index];
        let mut bytes = [0; 80];
        let request = UringCmdReq { commit_id, qid: slot.queue, ..UringCmdReq::default() };
        bytes[..size_of::<UringCmdReq>()].copy_from_slice(request.as_bytes());
        let mut entry = opcode::UringCmd80::new(self.fd, command)
            .cmd(bytes)
            .addr(Some(slot.iovecs.as_ptr() as u64))
            .build()
            .user_data(index as u64);
        set_len(&mut entry, slot.iovecs.len() as u32);
        push(&mut self.ring, &entry)?;
        slot.registered = true;
        Ok(())
    }

    /// Serves requests until the connection ends.
    fn serve(mut self, handler: &dyn Handler, pool: &WorkerPool) {
        let mut scratch = vec![0; SCRATCH_SIZE];
        loop {
            while let Some((index, result)) = self.completed.pop() {
                if result < 0 {
                    if !matches!(-result, libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED) {
                        let error = io::Error::from_raw_os_error(-result);
                        tracing::error!(%error, "the kernel gave up an io_uring entry");
                    }
                    continue;
                }
                let commit_id = serve_one(&mut self.slots[index], handler, pool, &mut scratch);
                if let Err(error) = self.submit(index, uring_cmd::COMMIT_AND_FETCH, commit_id) {
                    tracing::error!(%error, "a reply could not be submitted");
                }
            }
            if !self.slots.iter().any(|slot| slot.registered) {
                return;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "waiting for requests failed");
                    return;
                }
            }
            self.collect();
        }
    }
}

/// Serves the request in an entry that is ours, and leaves the reply there.
fn serve_one(slot: &mut Slot, handler: &dyn Handler, pool: &WorkerPool, scratch: &mut [u8]) -> u64 {
    let header = &mut *slot.header;
    let payload = slot.payload.as_mut_slice().as_mut_bytes();
    let request_len = (header.ent.payload_size as usize).min(payload.len());
    let (in_header, _) = InHeader::read_from_prefix(&header.in_out).expect("40 of 128 bytes");
    // Data comes in or goes out, rarely both: a reply to a request without payload is written in place.
    let in_place = request_len == 0;
    let (input, output) = if in_place { (&mut [][..], payload) } else { (&mut payload[..], &mut *scratch) };
    let request = Request::split(in_header, &header.op_in, &input[..request_len]);
    let mut reply = Reply::new(output);
    let (error, len) = match super::serve(handler, pool, &request, &mut reply) {
        Answer::Reply => (0, reply.len()),
        Answer::Error(errno) => (-errno.0, 0),
        Answer::Silent => (0, 0),
    };
    if !in_place {
        input[..len].copy_from_slice(&scratch[..len]);
    }
    let out = OutHeader { len: (size_of::<OutHeader>() + len) as u32, error, unique: in_header.unique };
    header.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
    header.ent.payload_size = len as u32;
    header.ent.commit_id
}

/// Sets the `len` field of a submission entry, which the builder of this operation does not offer.
#[allow(unsafe_code)]
fn set_len(entry: &mut Entry128, len: u32) {
    const LEN_OFFSET: usize = 24;
    const _: () = assert!(size_of::<Entry128>() == 128);
    // SAFETY: the entry is the kernel's `struct io_uring_sqe` (plain integers, repr(C)), in which `len` is the u32 at
    // byte 24; the pointer is in bounds by the assertion and aligned as the structure is.
    unsafe { std::ptr::from_mut(entry).cast::<u8>().add(LEN_OFFSET).cast::<u32>().write(len) };
}

#[allow(unsafe_code)]
fn push(ring: &mut Ring, entry: &Entry128) -> io::Result<()> {
    // SAFETY: the entry names a slot's iovecs, header and payload. They are heap blocks that a slot never reallocates,
    // and `Worker` frees them only after the command has completed (its Drop forgets those still registered). While
    // `registered` is set nothing here reads or writes them.
    unsafe { ring.submission().push(entry) }.map_err(|_| io::Error::other("the submission queue is full"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-2,5").unwrap(), [0, 1, 2, 5]);
        assert_eq!(parse_cpu_list("0").unwrap(), [0]);
        for wrong in ["", "a", "0-", "0-99999999999"] {
            assert!(parse_cpu_list(wrong).is_none(), "{wrong}");
        }
    }
}
