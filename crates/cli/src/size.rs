//! Sizes, times and owners as people write them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

const UNITS: [(&str, u64); 5] =
    [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40), ("P", 1 << 50)];

/// Bytes from `512M`, `1.5G`, `64MiB` or a plain number. Units are powers of 1024.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "'{text}' is not a size: expected a number, with K, M, G or T for powers of 1024, such as 512M or 1.5G"
        )
    };
    let upper = text.trim().to_ascii_uppercase();
    let bare = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    let (digits, unit) =
        UNITS.iter().find_map(|(name, unit)| Some((bare.strip_suffix(name)?, *unit))).unwrap_or((bare, 1));
    if !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') || (unit == 1 && digits.contains('.')) {
        return Err(wrong());
    }
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(unit).ok_or_else(wrong);
    }
    let value: f64 = digits.parse().map_err(|_| wrong())?;
    Ok((value * unit as f64) as u64)
}

/// `1.5 GiB`, `12 KiB`, `17 B`.
pub(crate) fn show(bytes: u64) -> String {
    let Some((name, unit)) = UNITS.iter().rev().find(|(_, unit)| bytes >= *unit) else {
        return format!("{bytes} B");
    };
    let value = bytes as f64 / *unit as f64;
    if bytes.is_multiple_of(*unit) { format!("{value:.0} {name}iB") } else { format!("{value:.1} {name}iB") }
}

/// As `ls -h` shows sizes: `17`, `1.5K`, `12M`; never less than it is.
pub(crate) fn short(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "");
    for (name, _) in UNITS {
        if value.ceil() < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, name);
    }
    match unit {
        "" => bytes.to_string(),
        _ if (value * 10.0).ceil() < 100.0 => format!("{:.1}{unit}", (value * 10.0).ceil() / 10.0),
        _ => format!("{:.0}{unit}", value.ceil()),
    }
}

/// `12.3 s`, `5 min 20 s`, `3 h 5 min`, `2 d 7 h`.
pub(crate) fn time(seconds: f64) -> String {
    let whole = seconds as u64;
    let two = |big: u64, name: &str, small: u64, rest: &str| match small {
        0 => format!("{big} {name}"),
        small => format!("{big} {name} {small} {rest}"),
    };
    match whole {
        0..60 if seconds == seconds.floor() => format!("{whole} s"),
        0..60 => format!("{seconds:.1} s"),
        60..3600 => two(whole / 60, "min", whole % 60, "s"),
        3600..86_400 => two(whole / 3600, "h", whole % 3600 / 60, "min"),
        _ => two(whole / 86_400, "d", whole % 86_400 / 3600, "h"),
    }
}

/// An image takes room on its disk as it is written to: a disk that is full then fails the volume, not the
/// program that writes to it. `written`: how much is to be written at most.
pub(crate) fn warn_of_small_disk(command: &str, image: &Path, size: u64, written: u64) {
    let (Ok(file), Ok(disk)) = (std::fs::metadata(image), rustix::fs::statvfs(image)) else { return };
    let (wanted, free) = (size.saturating_sub(file.blocks() * 512), disk.f_bavail * disk.f_frsize);
    if free < wanted.min(written) {
        errln!(
            "medfs {command}: warning: {} may grow to {}, but its disk has only {} free: once the disk is full, writes to the volume fail",
            image.display(),
            show(size),
            show(free)
        );
    }
}

/// `1000:100`, or `1000` for `1000:1000`.
pub(crate) fn parse_owner(text: &str) -> Result<(u32, u32), String> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    let id = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?;
    let owner = id(uid).zip(id(gid));
    owner.ok_or_else(|| {
        format!("'{text}' is not an owner: expected UID or UID:GID in numbers, such as 1000:1000")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("1k", 1024),
            ("64MiB", 64 << 20),
            ("64MB", 64 << 20),
            ("1G", 1 << 30),
            ("1.5g", 3 << 29),
            ("16T", 16 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1", "1X", "1.5", "1e9", "99999999999T", "1 G x"] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(&format!("'{text}'")) && message.contains("512M"), "{message}");
        }
    }

    #[test]
    fn shown_sizes_read_back() {
        for bytes in [0, 17, 4096, 64 << 20, 3 << 29, 16 << 40] {
            assert_eq!(parse(&show(bytes).replace(' ', "")), Ok(bytes));
        }
    }

    #[test]
    fn short_sizes_are_those_of_ls() {
        let shown =
            [(0, "0"), (1023, "1023"), (1024, "1.0K"), (1537, "1.6K"), (10_000, "9.8K"), (10_200, "10K")];
        for (bytes, text) in
            shown.into_iter().chain([(1_048_575, "1.0M"), (50_000_000, "48M"), (5 << 40, "5.0T")])
        {
            assert_eq!(short(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn times() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (12.34, "12.3 s"),
            (60.0, "1 min"),
            (90.0, "1 min 30 s"),
            (3600.0, "1 h"),
            (200_000.0, "2 d 7 h"),
        ] {
            assert_eq!(time(seconds), text);
        }
    }

    #[test]
    fn owners() {
        assert_eq!(parse_owner("10:20"), Ok((10, 20)));
        assert_eq!(parse_owner("10"), Ok((10, 10)));
        for text in ["root", "", ":", "1:", ":1", "1:2:3", "-1", "+1:1", "4294967296"] {
            assert!(parse_owner(text).unwrap_err().contains("UID:GID"), "{text}");
        }
    }
}
