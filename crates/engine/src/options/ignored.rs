//! Mount options that change nothing here.
//!
//! Purpose: an fstab line written for the kernel's f2fs is taken as it is. Some words are the business of `mount(8)`. Others tune
//! the kernel's own driver: they are accepted with the values that the kernel accepts, and a front end names them.

use super::{invalid, number};
use crate::error::Result;

/// Words of `mount(8)` and fstab, and what the system call layer carries out.
const OF_MOUNT: [&str; 31] = [
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "silent",
    "loud",
    "loop",
    "lazytime",
    "nolazytime",
    "atime",
    "diratime",
    "nodiratime",
    "norelatime",
    "nostrictatime",
    "nomand",
    "noiversion",
];

/// Values of an option of the kernel's f2fs.
enum Values {
    /// It is a word, with `no` before it or without.
    Switch,
    /// It is a word.
    Word,
    Number,
    Of(&'static [&'static str]),
    Any,
}
use Values::{Any, Number, Of, Switch, Word};

/// Options of the kernel's f2fs that have no counterpart here.
const OF_THE_KERNEL: &[(&str, Values)] = &[
    ("age_extent_cache", Switch),
    ("atgc", Switch),
    ("barrier", Switch),
    ("checkpoint", Of(&["enable"])),
    ("checkpoint_merge", Switch),
    ("compress_cache", Switch),
    ("data_flush", Switch),
    ("disable_ext_identify", Word),
    ("discard_unit", Of(&["block", "segment", "section"])),
    ("errors", Of(&["remount-ro", "continue", "panic"])),
    ("extent_cache", Switch),
    ("fastboot", Word),
    ("flush_merge", Switch),
    ("gc_merge", Switch),
    ("grpjquota", Any),
    ("grpquota", Word),
    ("heap", Word),
    ("inline_xattr_size", Number),
    ("inlinecrypt", Word),
    ("io_bits", Number),
    ("jqfmt", Of(&["vfsold", "vfsv0", "vfsv1"])),
    ("lookup_mode", Of(&["perf", "compat", "auto"])),
    ("memory", Of(&["normal", "low"])),
    ("mode", Of(&["adaptive"])),
    ("nat_bits", Word),
    ("no_heap", Word),
    ("prjjquota", Any),
    ("prjquota", Word),
    ("quota", Switch),
    ("reserve_root", Number),
    ("resgid", Number),
    ("resuid", Number),
    ("usrjquota", Any),
    ("usrquota", Word),
    ("whint_mode", Of(&["off", "user-based", "fs-based"])),
];

/// Options that say what happens here in any case.
const AS_IT_IS: [&str; 3] = ["errors=remount-ro", "checkpoint=enable", "mode=adaptive"];

/// Whether an option is a word of `mount(8)` or fstab, or says what happens in any case.
pub(super) fn is_of_mount(option: &str) -> bool {
    let comment = ["x-", "X-", "comment="].iter().any(|prefix| option.starts_with(prefix));
    comment || OF_MOUNT.contains(&option) || AS_IT_IS.contains(&option)
}

/// Whether an option is one of the kernel's f2fs that has no counterpart here; `Invalid` where its value is wrong.
pub(super) fn is_of_the_kernel(option: &str) -> Result<bool> {
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    let find = |name: &str| OF_THE_KERNEL.iter().find(|(known, _)| *known == name).map(|(_, values)| values);
    let Some(values) = find(name) else {
        let positive = name.strip_prefix("no").and_then(find);
        return Ok(value.is_none() && matches!(positive, Some(Switch)));
    };
    match (values, value) {
        (Switch | Word, None) | (Any, Some(_)) => Ok(true),
        // Without a value it is a word of its own that does not exist.
        (_, None) | (Switch | Word, Some(_)) => Ok(false),
        (Number, Some(value)) if number(value).is_some() => Ok(true),
        (Of(values), Some(value)) if values.contains(&value) => Ok(true),
        (Number, _) => Err(invalid(option, &format!("{name}=N, a number"))),
        (Of(values), _) => Err(invalid(option, &format!("{name}={}", values.join("|")))),
    }
}

#[cfg(test)]
mod tests {
    use crate::MountOptions;

    /// Options of f2fs as they are found in fstabs of phones, distributions and documentation.
    const FSTABS: &[&str] = &[
        "defaults,noatime,lazytime,nodiscard,discard_unit=segment,background_gc=on,atgc,gc_merge,active_logs=6",
        "rw,relatime,lazytime,background_gc=on,gc_merge,discard,discard_unit=block,user_xattr,inline_xattr,acl,inline_data,\
         inline_dentry,flush_merge,barrier,extent_cache,mode=adaptive,active_logs=6,alloc_mode=default,checkpoint_merge,\
         fsync_mode=posix,memory=normal,errors=continue",
        "noatime,nosuid,nodev,discard,reserve_root=32768,resgid=1065,resuid=0,fsync_mode=nobarrier,inlinecrypt,checkpoint_merge",
        "defaults,user,nofail,_netdev,x-systemd.device-timeout=5,compress_algorithm=zstd:6,compress_chksum,compress_cache,compress_extension=txt",
        "usrquota,grpquota,prjquota,errors=remount-ro,nobarrier,no_heap,age_extent_cache,whint_mode=fs-based,background_gc=sync",
        "usrjquota=aquota.user,grpjquota=aquota.group,jqfmt=vfsv1,compress_log_size=2,compress_mode=fs,data_flush,noquota,inline_xattr_size=56",
    ];

    #[test]
    fn fstabs_for_the_kernels_f2fs_are_taken() {
        for options in FSTABS {
            MountOptions::default().parse(options).unwrap_or_else(|e| panic!("{options}: {e}"));
        }
    }

    #[test]
    fn what_changes_nothing_is_told_apart() {
        let ignored = |option: &str| MountOptions::ignores(option);
        for option in
            ["atgc", "noatgc", "nobarrier", "errors=panic", "reserve_root=7", "usrjquota=a", "noquota"]
        {
            assert!(ignored(option), "{option}");
        }
        for option in [
            "defaults",
            "x-systemd.automount",
            "errors=remount-ro",
            "noatime",
            "discard",
            "frobnicate",
            "nousrquota",
        ] {
            assert!(!ignored(option), "{option}");
        }
    }

    #[test]
    fn wrong_values_of_what_is_ignored_are_errors() {
        for (option, accepted) in [
            ("reserve_root=many", "reserve_root=N"),
            ("errors=explode", "errors=remount-ro"),
            ("whint_mode=on", "whint_mode=off|user-based|fs-based"),
            ("atgc=1", "unknown"),
            ("reserve_root", "unknown"),
            ("nousrquota", "unknown"),
            ("nono_heap", "unknown"),
        ] {
            let error = MountOptions::default().parse(option).unwrap_err().to_string();
            assert!(error.contains(accepted) && error.contains(&format!("'{option}'")), "{error}");
        }
    }
}
