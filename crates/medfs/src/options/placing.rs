//! The options that say where blocks go.

use super::list::{choice, choose, itself, name_of, number, number_in, show_bytes, size, switch};
use super::table::Form::{Switch, Value};
use super::table::MountOption;
use super::{AllocMode, Goal, InPlace, Mode, MountOptions, PlacementPolicy, ReserveFiles};
use std::ops::RangeInclusive;

const ALLOC_MODES: &[(&str, AllocMode)] = &[("default", AllocMode::Default), ("reuse", AllocMode::Reuse)];
const PLACEMENTS: &[(&str, PlacementPolicy)] =
    &[("log", PlacementPolicy::Log), ("reserve", PlacementPolicy::Reserve)];
const RESERVE_FILES: &[(&str, ReserveFiles)] =
    &[("tree", ReserveFiles::Tree), ("pinned", ReserveFiles::Pinned), ("all", ReserveFiles::All)];
const GOALS: &[(&str, Goal)] = &[("wear", Goal::Wear), ("time", Goal::Time), ("balance", Goal::Balance)];
const MODES: &[(&str, Mode)] = &[
    ("adaptive", Mode::Adaptive),
    ("fragment:segment", Mode::FragmentSegment),
    ("fragment:block", Mode::FragmentBlock),
];
/// Accepted for `max_fragment_chunk` and `max_fragment_hole`, as by the kernel.
const FRAGMENTS: RangeInclusive<usize> = 1..=512;

/// The options.
pub(super) const OPTIONS: &[MountOption<MountOptions>] = &[
    choice!(
        "alloc_mode",
        "default|reuse",
        "by the size of the volume, as the kernel does: reuse up to 16 GiB",
        "Where new blocks are looked for: free segments first, or the start of the volume first.",
        ALLOC_MODES,
        alloc_mode,
        Some,
        itself
    ),
    MountOption {
        name: "in_place",
        form: Value("off|POLICY[+...]"),
        accepts: "POLICY is one of force, ssr, util, ssr_util, fsync, async, nocache and honor_opu_write",
        default: "by the size of the volume, as the kernel does: force up to 16 GiB, otherwise fsync",
        help: "When a page of a file is overwritten in place. off: never. force: whenever it is legal. ssr: while free sections \
               are few. util: while more than min_ipu_util percent are in use. ssr_util: where both hold. fsync: in an fdatasync, and in an fsync of at most min_fsync_blocks dirty pages. async: in writes that no caller waits for. nocache and honor_opu_write have no effect here.",
        set: |o, value| value.parse().map(|policies| o.in_place = Some(policies)).is_ok(),
        show: |o| o.in_place.map(|policies| policies.to_string()).into_iter().collect(),
    },
    MountOption {
        name: "ipu_policy",
        form: Value("N"),
        accepts: "the sum of the kernel's bits, up to 255",
        default: "",
        help: "The same as in_place, by the kernel's bits: 1 force, 2 ssr, 4 util, 8 ssr_util, 16 fsync, 32 async, 64 nocache, 128 \
               honor_opu_write.",
        set: |o, value| {
            let bits = number(value).and_then(|n| u8::try_from(n).ok());
            bits.map(|bits| o.in_place = Some(InPlace::of_kernel(bits))).is_some()
        },
        show: |_| Vec::new(),
    },
    MountOption {
        name: "min_ipu_util",
        form: Value("PERCENT"),
        accepts: "a number up to 100",
        default: "70",
        help: "With in_place=util and ssr_util, how much of the volume must be in use.",
        set: |o, value| number_in(value, 0..=100).map(|n| o.min_ipu_util = n as u32).is_some(),
        show: |o| vec![o.min_ipu_util.to_string()],
    },
    MountOption {
        name: "min_fsync_blocks",
        form: Value("N"),
        accepts: "a number from 1 to 1000000",
        default: "8",
        help: "With in_place=fsync, most dirty pages of an fsync that overwrites them.",
        set: |o, value| number_in(value, 1..=1_000_000).map(|n| o.min_fsync_blocks = n as u32).is_some(),
        show: |o| vec![o.min_fsync_blocks.to_string()],
    },
    choice!(
        "placement",
        "log|reserve",
        "log",
        "Where data blocks go. log: to the logs, or where in_place says so over the page's own block. reserve: files selected by reserve_files have segments of their own, in which each page has a fixed place and is overwritten there. Pinned files have them in any case.",
        PLACEMENTS,
        placement,
        itself,
        Some
    ),
    choice!(
        "reserve_files",
        "tree|pinned|all",
        "tree",
        "With placement=reserve, which files have segments of their own. tree: pinned files, and files that a decision tree expects to fragment; medfs ars trains the tree. pinned: pinned files. all: all files that are not compressed.",
        RESERVE_FILES,
        reserve_files,
        itself,
        Some
    ),
    choice!(
        "goal",
        "wear|time|balance",
        "wear",
        "With placement=reserve and reserve_files=tree, what decides where the tree asks for a segment, and whether pages of the file may be deltas. wear: the number of blocks that are written. time: how long the device takes, as measured. balance: both. Nothing is reserved where that costs more than a log.",
        GOALS,
        goal,
        itself,
        Some
    ),
    MountOption {
        name: "defragment_budget",
        form: Value("SIZE"),
        accepts: "a number of bytes, or one with K, M or G; 0 for nothing",
        default: "64M",
        help: "With placement=reserve, most that idle work writes a day to bring pages back to their places. It does so for \
               files that are read in order, and for files of at least 1M in pieces smaller than 64K. A mount begins with \
               nothing and earns this much in a day; a segment takes up to 2M at once.",
        set: |o, value| size(value).map(|bytes| o.defragment_budget = bytes).is_some(),
        show: |o| vec![show_bytes(o.defragment_budget)],
    },
    switch!(
        "reserve_retrain",
        reserve_retrain,
        "off",
        "With placement=reserve and reserve_files=tree, train the decision tree every ten days on the files that were judged since \
         the mount, in the hour of the day in which the volume is used least. The new tree is stored on the volume, in place of \
         the one there, only if it is right about more of the files held back. medfs ars retrain does it at once."
    ),
    choice!(
        "mode",
        "adaptive|fragment:segment|fragment:block",
        "adaptive",
        "fragment:segment takes free segments at random; fragment:block leaves holes in them too, between runs of blocks. Both age a \
         volume for experiments.",
        MODES,
        mode,
        itself,
        Some
    ),
    MountOption {
        name: "max_fragment_chunk",
        form: Value("N"),
        accepts: "a number from 1 to 512",
        default: "4",
        help: "With mode=fragment:block, most blocks of a run.",
        set: |o, value| number_in(value, FRAGMENTS).map(|n| o.max_fragment_chunk = n as u16).is_some(),
        show: |o| vec![o.max_fragment_chunk.to_string()],
    },
    MountOption {
        name: "max_fragment_hole",
        form: Value("N"),
        accepts: "a number from 1 to 512",
        default: "4",
        help: "With mode=fragment:block, most blocks of a hole.",
        set: |o, value| number_in(value, FRAGMENTS).map(|n| o.max_fragment_hole = n as u16).is_some(),
        show: |o| vec![o.max_fragment_hole.to_string()],
    },
];
