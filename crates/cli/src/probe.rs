//! `medfs probe`: says what volume is on a device, for udev and scripts, as blkid does of what it knows.

use crate::args::ProbeArgs;
use crate::{exit, json, target};
use anyhow::{Context, Result};
use medfs_device::{BlockDevice, read_block};
use medfs_format::superblock::RawSuperblock;
use medfs_format::weigh;
use std::fmt::Write;

/// `medfs probe`
pub(crate) fn run(args: &ProbeArgs) -> Result<u8> {
    let dev = target::open_to_look(&args.device)?;
    let sb = superblock(&*dev).with_context(|| format!("cannot read {}", args.device.display()))?;
    let Some(sb) = sb else { return Ok(exit::PROBE_NOTHING) };
    let kind = if sb.is_delta_volume() { "medfs" } else { "f2fs" };
    let (uuid, label) = (uuid::Uuid::from_bytes(sb.uuid).to_string(), sb.label());
    let version = format!("{}.{}", sb.major_ver, sb.minor_ver);
    if args.json {
        let device = args.device.display().to_string();
        let fields = serde_json::json!({"device": device, "type": kind, "version": version, "uuid": uuid, "label": label});
        json::print(&fields)?;
        return Ok(exit::SUCCESS);
    }
    if !args.udev {
        outln!("TYPE={kind}\nVERSION={version}\nUUID={uuid}\nLABEL={}", encoded(&label));
        return Ok(exit::SUCCESS);
    }
    outln!("ID_FS_TYPE={kind}\nID_FS_USAGE=filesystem\nID_FS_VERSION={version}");
    outln!("ID_FS_UUID={uuid}\nID_FS_UUID_ENC={uuid}");
    if !label.is_empty() {
        outln!("ID_FS_LABEL={}\nID_FS_LABEL_ENC={}", safe(&label), encoded(&label));
    }
    Ok(exit::SUCCESS)
}

/// The superblock that counts, if there is one.
fn superblock(dev: &dyn BlockDevice) -> Result<Option<RawSuperblock>> {
    if dev.block_count() < 2 {
        return Ok(None);
    }
    let mut copies = Vec::new();
    let mut unreadable = None;
    for addr in 0..2 {
        match read_block(dev, addr) {
            Ok(block) => copies.push(RawSuperblock::in_block(&block).clone()),
            Err(error) => unreadable = Some(error),
        }
    }
    copies.retain(|copy| copy.validate().is_ok());
    if let Some(error) = unreadable.filter(|_| copies.is_empty()) {
        return Err(error.into());
    }
    let mut read = |addr: u32| Ok::<_, std::io::Error>(read_block(dev, addr.into()).ok());
    Ok(weigh::in_force(&copies.iter().collect::<Vec<_>>(), &mut read)?)
}

/// Whether udev takes a character as it is in names of links.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c) || (!c.is_ascii() && !c.is_control())
}

/// A label with all but plain characters as `\xNN`, as udev encodes them.
fn encoded(label: &str) -> String {
    let mut text = String::new();
    for c in label.chars() {
        if is_plain(c) {
            text.push(c);
        } else {
            c.encode_utf8(&mut [0; 4]).bytes().for_each(|b| write!(text, "\\x{b:02x}").expect("a string"));
        }
    }
    text
}

/// A label with `_` for all but plain characters.
fn safe(label: &str) -> String {
    label.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_lead_out_of_their_line() {
        let label = "naïve/a b\nID_FS_TYPE=ext4";
        assert_eq!(encoded(label), "naïve\\x2fa\\x20b\\x0aID_FS_TYPE=ext4");
        assert_eq!(safe(label), "naïve_a_b_ID_FS_TYPE=ext4");
    }
}
