//! Extended attributes, ACLs among them.

use super::context::{Context, Done};
use crate::abi::{GetxattrIn, GetxattrOut, SETXATTR_ACL_KILL_SGID, SetxattrCompatIn, SetxattrIn};
use crate::credentials::{Capability, Credentials};
use crate::request::{Errno, Reply, Request, name, split_name};
use medfs::XattrMode;

/// Operations on extended attributes.
pub(super) struct Xattrs<'c>(pub(super) &'c Context);

impl Xattrs<'_> {
    pub(super) fn setxattr(&self, request: &Request<'_>) -> Done {
        let ino = self.0.subject(request)?;
        let (arg, rest) = if self.0.setxattr_ext {
            request.arg_and_rest::<SetxattrIn>()?
        } else {
            let (arg, rest) = request.arg_and_rest::<SetxattrCompatIn>()?;
            (SetxattrIn { size: arg.size, flags: arg.flags, ..SetxattrIn::default() }, rest)
        };
        let (name, rest) = split_name(rest)?;
        let value = rest.get(..arg.size as usize).ok_or(Errno::IO)?;
        let mode = match arg.flags as i32 {
            0 => XattrMode::Set,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::INVAL),
        };
        self.0.files.setxattr(ino, name, value, mode)?;
        if arg.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0 {
            self.0.kill_set_gid(request.nodeid(), ino)?;
        }
        Ok(())
    }

    pub(super) fn getxattr(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let (arg, rest) = request.arg_and_rest::<GetxattrIn>()?;
        let value = self.0.files.getxattr(self.0.subject(request)?, name(rest)?)?;
        reply_sized(reply, arg.size, &value)
    }

    pub(super) fn listxattr(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let arg: GetxattrIn = request.arg()?;
        let caller = Credentials::of(&request.header);
        let mut names = Vec::new();
        for name in self.0.files.listxattr(self.0.subject(request)?)? {
            // Only who may read them sees them; the kernel leaves that to the file system.
            if !name.starts_with(b"trusted.") || caller.has(Capability::SysAdmin) {
                names.extend_from_slice(&name);
                names.push(0);
            }
        }
        reply_sized(reply, arg.size, &names)
    }

    pub(super) fn removexattr(&self, request: &Request<'_>) -> Done {
        Ok(self.0.files.removexattr(self.0.subject(request)?, name(request.rest())?)?)
    }
}

/// Replies with bytes, or with their number where the caller asked for that by a size of 0.
fn reply_sized(reply: &mut Reply<'_>, size: u32, bytes: &[u8]) -> Done {
    if size == 0 {
        return reply.push(&GetxattrOut { size: bytes.len() as u32, padding: 0 });
    }
    if bytes.len() > size as usize {
        return Err(Errno::RANGE);
    }
    reply.bytes(bytes)
}
