//! Logs of `strace -f -y -xx -s N`, with `-ttt`, `-tt` or `-r` and `-T` where times are wanted.
//!
//! Descriptors are followed through `open`, `dup`, `fork` and threads; one that was open before the log began
//! is known by the path that `-y` shows, and its position is not. Strings that strace has cut short are known
//! as far as they go.

use super::model::{Model, Node, When};
use super::parser::{Parser, check_range, shown};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

mod call;
mod line;

use call::Call;

/// An open file description: descriptors that were duplicated share it.
#[derive(Debug)]
struct Open {
    node: Node,
    /// `None`: not known.
    position: Option<u64>,
    append: bool,
    on_exec: bool,
}

type Description = Rc<RefCell<Open>>;
type Table = Rc<RefCell<HashMap<i64, Description>>>;

#[derive(Default)]
pub(super) struct Strace {
    tables: HashMap<u32, Table>,
    /// Process of a thread, where it is not the thread's own number.
    processes: HashMap<u32, u32>,
    /// First parts of calls that were interrupted by others, with when they began.
    unfinished: HashMap<u32, (Vec<u8>, u64)>,
    began: Option<u64>,
    /// The latest time, for lines without one.
    now: u64,
}

impl Parser for Strace {
    fn line(&mut self, text: &[u8], model: &mut Model<'_>) -> Result<(), String> {
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let head = line::head(text)?;
        let at = match head.time {
            Some(line::Time::Absolute(time)) => time.saturating_sub(*self.began.get_or_insert(time)),
            Some(line::Time::Since(delta)) => self.now.saturating_add(delta),
            None => self.now,
        };
        self.now = self.now.max(at);
        let (pid, rest) = (head.pid, head.rest);
        if rest.starts_with(b"---") || rest.starts_with(b"+++") || rest.starts_with(b"strace: ") {
            if rest.starts_with(b"+++") {
                self.tables.remove(&pid);
                self.processes.remove(&pid);
            }
            return Ok(());
        }
        if let Some(first) =
            rest.strip_suffix(b" <unfinished ...>").or_else(|| rest.strip_suffix(b"<unfinished ...>"))
        {
            const UNFINISHED_MAX: usize = 100_000;
            if self.unfinished.len() < UNFINISHED_MAX {
                self.unfinished.insert(pid, (first.to_vec(), at));
            }
            return Ok(());
        }
        let (mut whole, mut began) = (rest.to_vec(), at);
        if rest.starts_with(b"<... ") {
            let behind =
                line::after(rest, b"resumed>").ok_or_else(|| format!("'{}' resumes nothing", shown(rest)))?;
            let Some((first, then)) = self.unfinished.remove(&pid) else {
                model.skip("a call whose beginning is missing");
                return Ok(());
            };
            whole = [&first[..], behind].concat();
            began = then;
        }
        let call = call::parse(&whole)?;
        let process = self.processes.get(&pid).copied().unwrap_or(pid);
        model.at(When { at: began, took: call.took, process, thread: pid });
        self.call(&call, pid, model)
    }
}

impl Strace {
    fn table(&mut self, pid: u32) -> Table {
        self.tables.entry(pid).or_default().clone()
    }

    /// The description behind an argument like `3</path>`.
    fn description(&mut self, pid: u32, argument: &[u8], model: &mut Model<'_>) -> Option<Description> {
        let (number, path) = call::descriptor(argument)?;
        let table = self.table(pid);
        // The table knows better than the path, which a rename changes.
        if let Some(open) = table.borrow().get(&number) {
            return Some(open.clone());
        }
        let path = path.filter(|path| path.starts_with(b"/") && !path.ends_with(b" (deleted)"))?;
        let node = model.find(&path, false)?;
        let open = Open { node, position: None, append: false, on_exec: false };
        let open = Rc::new(RefCell::new(open));
        table.borrow_mut().insert(number, open.clone());
        Some(open)
    }

    fn call(&mut self, call: &Call, pid: u32, model: &mut Model<'_>) -> Result<(), String> {
        let name = call.name.trim_end_matches("64");
        match name {
            "clone" | "clone3" | "fork" | "vfork" => self.fork(call, pid),
            "execve" | "execveat" if call.result == Some(0) => {
                let table = self.table(pid);
                table.borrow_mut().retain(|_, open| !open.borrow().on_exec);
            }
            _ if call.result.is_none() => model.skip(&format!("{name} without a result")),
            "open" | "openat" | "openat2" | "creat" => self.open(call, pid, model),
            "read" | "pread" | "readv" | "preadv" | "preadv2" | "write" | "pwrite" | "writev" | "pwritev"
            | "pwritev2" => return self.transfer(call, pid, model),
            "dup" | "dup2" | "dup3" => self.duplicate(call, pid, model),
            "fcntl" if call.arg(1).starts_with(b"F_DUPFD") => self.duplicate(call, pid, model),
            "fcntl" | "flock" | "ioctl" | "mmap" | "fadvise" | "poll" | "getcwd" | "readlink"
            | "readlinkat" => {
                model.skip(name);
            }
            _ if call.result < Some(0) => self.failed(call, name, model),
            "stat" | "lstat" | "access" | "faccessat" | "faccessat2" | "newfstatat" | "fstatat" | "statx"
            | "fstat" => {
                self.look(call, name, pid, model);
            }
            "close" | "fsync" | "fdatasync" | "lseek" | "_llseek" | "ftruncate" | "fallocate"
            | "getdents" | "fchmod" => self.on_descriptor(call, name, pid, model),
            _ => on_names(call, name, model),
        }
        Ok(())
    }

    fn fork(&mut self, call: &Call, pid: u32) {
        let Some(child) = call.result.filter(|&child| child > 0).and_then(|child| u32::try_from(child).ok())
        else {
            return;
        };
        let parent = self.table(pid);
        if call.mentions(b"CLONE_FILES") {
            // What the child did before this line was seen stays.
            if let Some(early) = self.tables.insert(child, parent.clone()) {
                let early: Vec<_> = early.borrow().iter().map(|(fd, open)| (*fd, open.clone())).collect();
                parent.borrow_mut().extend(early);
            }
        } else {
            let table = self.table(child);
            for (fd, open) in parent.borrow().iter() {
                table.borrow_mut().entry(*fd).or_insert_with(|| open.clone());
            }
        }
        if call.mentions(b"CLONE_THREAD") {
            let process = self.processes.get(&pid).copied().unwrap_or(pid);
            self.processes.insert(child, process);
        }
    }

    fn open(&mut self, call: &Call, pid: u32, model: &mut Model<'_>) {
        let (path, flags) = match call.name.trim_end_matches("64") {
            "open" => (call.path(0), call.arg(1).to_vec()),
            "creat" => (call.path(0), b"O_WRONLY|O_CREAT|O_TRUNC".to_vec()),
            _ => (call.path_at(0, 1), call.arg(2).to_vec()),
        };
        let Some(path) = path else { return model.skip("open of a path that is not whole") };
        let flags = String::from_utf8_lossy(&flags).into_owned();
        let has =
            |flag: &str| flags.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(|f| f == flag);
        let Some(number) = call.result.filter(|&number| number >= 0) else {
            return self.failed(call, "open", model);
        };
        let mode = call.mode(if call.name == "creat" {
            1
        } else if call.name.starts_with("openat") {
            3
        } else {
            2
        });
        if has("O_TMPFILE") {
            return model.skip("open of a file without a name");
        }
        let (node, made) = if has("O_CREAT") {
            let Some(opened) = model.make_or_find(&path, mode.unwrap_or(0o644)) else { return };
            opened
        } else {
            let Some(node) = model.find(&path, has("O_DIRECTORY")) else { return };
            (node, false)
        };
        let writes = has("O_WRONLY") || has("O_RDWR");
        if has("O_TRUNC") && !made && writes {
            model.truncate(node, 0);
        }
        let access = if has("O_WRONLY") {
            libc::O_WRONLY
        } else if writes {
            libc::O_RDWR
        } else {
            libc::O_RDONLY
        };
        model.opened(node, access);
        let open = Open { node, position: Some(0), append: has("O_APPEND"), on_exec: has("O_CLOEXEC") };
        self.table(pid).borrow_mut().insert(number, Rc::new(RefCell::new(open)));
    }

    fn duplicate(&mut self, call: &Call, pid: u32, model: &mut Model<'_>) {
        let Some(number) = call.result.filter(|&number| number >= 0) else { return };
        if let Some(open) = self.description(pid, call.arg(0), model) {
            self.table(pid).borrow_mut().insert(number, open);
        }
    }

    /// read and write in all their forms.
    fn transfer(&mut self, call: &Call, pid: u32, model: &mut Model<'_>) -> Result<(), String> {
        let name = call.name.trim_end_matches("64");
        let Some(came) = call.result.and_then(|came| u64::try_from(came).ok()) else {
            model.skip(&format!("{name} that failed"));
            return Ok(());
        };
        let Some(open) = self.description(pid, call.arg(0), model) else {
            model.skip(&format!("{name} of a descriptor that is not a file of the log"));
            return Ok(());
        };
        let (positioned, vectored) = (name.starts_with('p'), name.contains('v'));
        let bytes = if vectored { call::vector(call.arg(1)) } else { call::string(call.arg(1)).0 };
        let asked = if vectored { came } else { call.number(2).unwrap_or(came) };
        let mut open = open.borrow_mut();
        let is_read = name.contains("read");
        let offset = if positioned {
            call.number(3)
        } else if open.append && !is_read {
            Some(model.size(open.node))
        } else {
            open.position
        };
        let Some(offset) = offset else {
            model.skip(&format!("{name} at a position that is not known"));
            return Ok(());
        };
        check_range(offset, came.max(asked.min(came)))?;
        if is_read {
            model.read(open.node, offset, asked.max(came), came, &bytes);
        } else if came > 0 {
            model.write_at(open.node, offset, came, &bytes);
        }
        if !positioned {
            open.position = Some(offset + came);
        }
        Ok(())
    }

    fn on_descriptor(&mut self, call: &Call, name: &str, pid: u32, model: &mut Model<'_>) {
        if name == "close" {
            if let Some((number, _)) = call::descriptor(call.arg(0))
                && let Some(open) = self.table(pid).borrow_mut().remove(&number)
                && Rc::strong_count(&open) == 1
            {
                model.closed(open.borrow().node);
            }
            return;
        }
        let Some(open) = self.description(pid, call.arg(0), model) else {
            return model.skip(&format!("{name} of a descriptor that is not a file of the log"));
        };
        let mut open = open.borrow_mut();
        let node = open.node;
        match name {
            "fsync" | "fdatasync" => model.fsync(node, name == "fdatasync"),
            "lseek" | "_llseek" => open.position = call.result.and_then(|at| u64::try_from(at).ok()),
            "ftruncate" => match call.number(1).filter(|&size| i64::try_from(size).is_ok()) {
                Some(size) => model.truncate(node, size),
                None => model.skip("ftruncate to a size that is not known"),
            },
            "fallocate" => match (call::fallocate_mode(call.arg(1)), call.number(2), call.number(3)) {
                (Some(mode), Some(offset), Some(len)) if check_range(offset, len).is_ok() => {
                    model.fallocate(node, mode, offset, len);
                }
                _ => model.skip("fallocate in a way that is not known"),
            },
            "fchmod" => match call.mode(1) {
                Some(mode) => model.chmod(node, mode),
                None => model.skip("fchmod to a mode that is not known"),
            },
            _ if call.result == Some(0) => {}
            _ => model.list(node),
        }
    }

    fn look(&mut self, call: &Call, name: &str, pid: u32, model: &mut Model<'_>) {
        let at = matches!(name, "faccessat" | "faccessat2" | "newfstatat" | "fstatat" | "statx");
        let own = name == "fstat"
            || (at && call.mentions(b"AT_EMPTY_PATH") && call::string(call.arg(1)).0.is_empty());
        let node = if own {
            self.description(pid, call.arg(0), model).map(|open| open.borrow().node)
        } else {
            let path = if at { call.path_at(0, 1) } else { call.path(0) };
            let Some(path) = path else { return model.skip(&format!("{name} of a path that is not whole")) };
            model.find(&path, call.mentions(b"S_IFDIR"))
        };
        let Some(node) = node else { return };
        if let Some(size) = call.size_shown() {
            model.seen_size(node, size);
        }
        model.look(node);
    }

    fn failed(&mut self, call: &Call, name: &str, model: &mut Model<'_>) {
        let path = match name {
            "open" if call.name.starts_with("openat") => call.path_at(0, 1),
            "open" | "stat" | "lstat" | "access" | "unlink" | "rmdir" => call.path(0),
            "newfstatat" | "fstatat" | "faccessat" | "faccessat2" | "statx" | "unlinkat" => {
                call.path_at(0, 1)
            }
            _ => None,
        };
        match path {
            Some(path) if call.error == "ENOENT" => model.missing(&path),
            _ => model.skip(&format!("{name} that failed")),
        }
    }
}

/// Calls that speak of names alone.
fn on_names(call: &Call, name: &str, model: &mut Model<'_>) {
    use medfs::FileKind::Directory;
    let both = |first: Option<Vec<u8>>, second: Option<Vec<u8>>| first.zip(second);
    let known = match name {
        "mkdir" => call
            .path(0)
            .map(|path| model.make(&path, Directory, call.mode(1).unwrap_or(0o755)).map_or((), |_| ())),
        "mkdirat" => call
            .path_at(0, 1)
            .map(|path| model.make(&path, Directory, call.mode(2).unwrap_or(0o755)).map_or((), |_| ())),
        "unlink" => call.path(0).map(|path| model.remove(&path, false)),
        "rmdir" => call.path(0).map(|path| model.remove(&path, true)),
        "unlinkat" => call.path_at(0, 1).map(|path| model.remove(&path, call.mentions(b"AT_REMOVEDIR"))),
        "rename" => both(call.path(0), call.path(1)).map(|(from, to)| model.rename(&from, &to, 0)),
        "renameat" => {
            both(call.path_at(0, 1), call.path_at(2, 3)).map(|(from, to)| model.rename(&from, &to, 0))
        }
        "renameat2" => both(call.path_at(0, 1), call.path_at(2, 3)).map(|(from, to)| {
            let flags = u32::from(call.mentions(b"RENAME_NOREPLACE"))
                | u32::from(call.mentions(b"RENAME_EXCHANGE")) << 1;
            model.rename(&from, &to, flags);
        }),
        "link" => both(call.path(0), call.path(1)).map(|(from, to)| model.link(&from, &to)),
        "linkat" => both(call.path_at(0, 1), call.path_at(2, 3)).map(|(from, to)| model.link(&from, &to)),
        "symlink" => both(call.text(0), call.path(1)).map(|(target, path)| model.symlink(&path, &target)),
        "symlinkat" => {
            both(call.text(0), call.path_at(1, 2)).map(|(target, path)| model.symlink(&path, &target))
        }
        "truncate" => call.path(0).zip(call.number(1)).and_then(|(path, size)| {
            let size = i64::try_from(size).ok()? as u64;
            model.find(&path, false).map(|node| model.truncate(node, size))
        }),
        "chmod" => call
            .path(0)
            .zip(call.mode(1))
            .and_then(|(path, mode)| model.find(&path, false).map(|node| model.chmod(node, mode))),
        "sync" | "syncfs" => {
            model.sync();
            Some(())
        }
        _ => return model.skip(name),
    };
    if known.is_none() {
        model.skip(&format!("{name} of a path that is not whole"));
    }
}
