//! Mount options that change nothing here.
//!
//! Purpose: an fstab line written for the kernel's f2fs is taken as it is. Some words are the business of
//! `mount(8)`. Others tune the kernel's own driver: they are accepted with the values that the kernel
//! accepts, and a front end names them.

use super::list::number;
use super::table::Form::{self, Switch, Value, Word};
use super::table::{split, wrong_value};

/// Words of `mount(8)` and fstab, and what the system call layer carries out.
pub(super) const OF_MOUNT: [&str; 29] = [
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
    "diratime",
    "nodiratime",
    "norelatime",
    "nomand",
    "noiversion",
];

/// Options of the kernel's f2fs that have no counterpart here.
const OF_THE_KERNEL: &[(&str, Form)] = &[
    ("age_extent_cache", Word),
    ("atgc", Switch),
    ("barrier", Switch),
    ("checkpoint", Value("enable")),
    ("checkpoint_merge", Switch),
    ("compress_cache", Word),
    ("data_flush", Word),
    ("disable_ext_identify", Word),
    ("discard_unit", Value("block|segment|section")),
    ("errors", Value("remount-ro|continue|panic")),
    ("extent_cache", Switch),
    ("fastboot", Word),
    ("flush_merge", Switch),
    ("gc_merge", Switch),
    ("grpjquota", Value("NAME")),
    ("grpquota", Word),
    ("heap", Word),
    ("inline_xattr_size", Value("N")),
    ("inlinecrypt", Word),
    ("io_bits", Value("N")),
    ("jqfmt", Value("vfsold|vfsv0|vfsv1")),
    ("lookup_mode", Value("perf|compat|auto")),
    ("memory", Value("normal|low")),
    ("nat_bits", Word),
    ("no_heap", Word),
    ("prjjquota", Value("NAME")),
    ("prjquota", Word),
    ("quota", Switch),
    ("reserve_root", Value("N")),
    ("resgid", Value("N")),
    ("resuid", Value("N")),
    ("usrjquota", Value("NAME")),
    ("usrquota", Word),
    ("whint_mode", Value("off|user-based|fs-based")),
];

/// Options that say what happens here in any case.
const AS_IT_IS: [&str; 2] = ["errors=remount-ro", "checkpoint=enable"];

/// Options of the kernel's f2fs that mean something here that is not done, and why.
const REFUSED: [(&str, &str); 3] = [
    (
        "mode=lfs",
        "logs also fill the holes of used segments; in_place=off keeps pages from being overwritten",
    ),
    (
        "checkpoint=disable",
        "no change would become durable; to keep the volume unchanged, mount a copy, or use ro",
    ),
    ("test_dummy_encryption", "encryption is not implemented"),
];

/// A sentence about an option that the kernel's f2fs takes and that is refused here.
pub(super) fn why_refused(option: &str) -> Option<String> {
    let (_, why) = REFUSED.iter().find(|(start, _)| option.starts_with(start))?;
    Some(format!("{option} is not supported: {why}"))
}

/// Whether an option is a word of `mount(8)` or fstab, or says what happens in any case.
pub(super) fn is_of_mount(option: &str) -> bool {
    let comment = ["x-", "X-", "comment="].iter().any(|prefix| option.starts_with(prefix));
    let comment = comment || ["user=", "uhelper=", "helper="].iter().any(|prefix| option.starts_with(prefix));
    comment || OF_MOUNT.contains(&option) || AS_IT_IS.contains(&option)
}

/// The options of the kernel's f2fs that have no counterpart here, as they are written.
pub(super) fn of_the_kernel() -> impl Iterator<Item = String> {
    OF_THE_KERNEL.iter().map(|(name, form)| match form {
        Word => (*name).to_owned(),
        Switch => format!("[no]{name}"),
        Value(values) => format!("{name}={values}"),
    })
}

/// Their names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OF_THE_KERNEL.iter().map(|(name, _)| *name)
}

/// Whether an option is one of the kernel's f2fs that has no counterpart here; a sentence where its value is wrong.
pub(super) fn is_of_the_kernel(option: &str) -> Result<bool, String> {
    let (name, value) = split(option);
    let find = |name: &str| OF_THE_KERNEL.iter().find(|(known, _)| *known == name).map(|(_, form)| *form);
    let Some(form) = find(name) else {
        let positive = name.strip_prefix("no").and_then(find);
        return Ok(value.is_none() && positive == Some(Switch));
    };
    match (form, value) {
        (Switch | Word, None) => Ok(true),
        (Switch | Word, Some(_)) => Err(format!("{name} takes no value")),
        (Value(values), None) => Err(format!("{name} needs a value: expected {name}={values}")),
        (Value("NAME"), Some(_)) => Ok(true),
        (Value("N"), Some(value)) if number(value).is_some() => Ok(true),
        (Value("N"), Some(value)) => Err(wrong_value(name, value, "N", "a number")),
        (Value(values), Some(value)) if values.split('|').any(|known| known == value) => Ok(true),
        (Value(values), Some(value)) => Err(wrong_value(name, value, values, "")),
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
        "defaults,user=joe,uhelper=udisks2,nofail,_netdev,x-systemd.device-timeout=5,noatgc,compress_algorithm=lz4:3,compress_chksum,compress_cache,compress_extension=txt",
        "usrquota,grpquota,prjquota,errors=remount-ro,nobarrier,no_heap,age_extent_cache,whint_mode=fs-based,background_gc=sync",
        "usrjquota=aquota.user,grpjquota=aquota.group,jqfmt=vfsv1,compress_log_size=2,compress_mode=fs,data_flush,noquota,inline_xattr_size=56",
    ];

    /// What the kernel's documentation of f2fs lists (6.17), a value for each, and whether it is taken here.
    /// Options that say what is stored, or that no volume here can have, are refused: a mount without them
    /// would not be what was asked for.
    const OF_THE_DOCUMENTATION: &[(&str, bool)] = &[
        ("background_gc=on background_gc=off background_gc=sync gc_merge nogc_merge", true),
        ("disable_roll_forward discard nodiscard heap no_heap nouser_xattr noacl", true),
        ("active_logs=6 disable_ext_identify inline_xattr noinline_xattr inline_xattr_size=56", true),
        ("inline_data inline_dentry noinline_dentry flush_merge noflush_merge nobarrier barrier", true),
        ("fastboot extent_cache noextent_cache noinline_data data_flush", true),
        ("reserve_root=8 resuid=0 resgid=1065 mode=adaptive mode=fragment:segment mode=fragment:block", true),
        ("usrquota grpquota prjquota usrjquota=a grpjquota=b prjjquota=c jqfmt=vfsold", true),
        ("jqfmt=vfsv0 jqfmt=vfsv1 quota noquota alloc_mode=reuse alloc_mode=default", true),
        ("fsync_mode=posix fsync_mode=strict fsync_mode=nobarrier checkpoint=enable", true),
        ("checkpoint_merge nocheckpoint_merge compress_algorithm=lzo compress_algorithm=lzo-rle", true),
        ("compress_algorithm=lz4 compress_algorithm=zstd:3 compress_log_size=2", true),
        ("compress_extension=txt nocompress_extension=zip compress_chksum compress_mode=fs", true),
        ("compress_mode=user compress_cache inlinecrypt atgc noatgc discard_unit=block", true),
        ("compress_algorithm=lz4:3 compress_algorithm=lz4:12 compress_algorithm=zstd:22", true),
        ("discard_unit=segment discard_unit=section memory=normal memory=low age_extent_cache", true),
        ("errors=panic errors=continue errors=remount-ro nat_bits lookup_mode=perf", true),
        ("lookup_mode=compat lookup_mode=auto whint_mode=off io_bits=2", true),
        ("mode=lfs checkpoint=disable", false),
        ("checkpoint=disable:10% fault_injection=1 fault_type=1 test_dummy_encryption=v2", false),
        ("active_logs=2 active_logs=4 nodata_flush nocompress_cache noage_extent_cache nofastboot", false),
        ("noheap nousrquota noinlinecrypt nonat_bits reserve_root reserve_root=-1 jqfmt errors", false),
    ];

    #[test]
    fn each_option_of_the_documentation_is_taken_or_refused_as_it_means() {
        for (options, taken) in OF_THE_DOCUMENTATION {
            for option in options.split(' ') {
                let result = MountOptions::default().parse(option);
                assert_eq!(result.is_ok(), *taken, "{option}: {result:?}");
            }
        }
    }

    #[test]
    fn what_is_ignored_changes_nothing_and_is_named_and_the_rest_is_not() {
        let sets = |option: &str| {
            let mut all = MountOptions::default();
            all.parse(option).is_ok() && all != MountOptions::default()
        };
        for row in super::of_the_kernel() {
            let (plain, no) = match row.strip_prefix("[no]") {
                Some(name) => (name.to_owned(), Some(format!("no{name}"))),
                None => (row, None),
            };
            let value = |text: &str| match text.split_once('=') {
                Some((name, "N" | "NAME")) => format!("{name}=7"),
                Some((name, values)) => format!("{name}={}", values.rsplit('|').next().unwrap()),
                None => text.to_owned(),
            };
            for option in [Some(value(&plain)), no].into_iter().flatten() {
                let as_it_is = super::AS_IT_IS.contains(&option.as_str());
                assert!(!sets(&option), "{option}");
                assert_eq!(MountOptions::ignores(&option), !as_it_is, "{option}");
            }
        }
        for option in super::OF_MOUNT {
            assert!(!sets(option) && !MountOptions::ignores(option), "{option}");
        }
        for row in crate::options::described() {
            assert!(super::names().all(|name| name != row.name), "{} is in two tables", row.name);
        }
    }

    #[test]
    fn fstabs_for_the_kernels_f2fs_are_taken() {
        for options in FSTABS {
            MountOptions::default().parse(options).unwrap_or_else(|e| panic!("{options}: {e}"));
        }
    }

    #[test]
    fn what_changes_nothing_is_told_apart() {
        let ignored = |option: &str| MountOptions::ignores(option);
        for option in ["atgc", "nobarrier", "errors=panic", "reserve_root=7", "usrjquota=a", "noquota"] {
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
    fn what_is_refused_says_why() {
        for (option, why) in [
            ("mode=lfs", "mode=lfs is not supported: logs also fill the holes of used segments"),
            (
                "checkpoint=disable:10%",
                "checkpoint=disable:10% is not supported: no change would become durable",
            ),
            (
                "test_dummy_encryption=v2",
                "test_dummy_encryption=v2 is not supported: encryption is not implemented",
            ),
        ] {
            let told = MountOptions::default().parse(option).unwrap_err().to_string();
            assert!(told.starts_with(why) && told.lines().count() == 1, "{told}");
        }
    }

    #[test]
    fn wrong_values_of_what_is_ignored_are_errors() {
        for (option, told) in [
            ("reserve_root=many", "invalid value 'many' for reserve_root: expected N, a number"),
            ("errors=explode", "invalid value 'explode' for errors: expected remount-ro|continue|panic"),
            ("whint_mode=on", "invalid value 'on' for whint_mode: expected off|user-based|fs-based"),
            ("atgc=1", "atgc takes no value"),
            ("reserve_root", "reserve_root needs a value: expected reserve_root=N"),
            ("nousrquota", "unknown option 'nousrquota', did you mean 'usrquota'?"),
            ("nono_heap", "unknown option 'nono_heap', did you mean 'no_heap'?"),
        ] {
            assert_eq!(MountOptions::default().parse(option).unwrap_err().to_string(), told);
        }
    }
}
