//! Reads what is fixed of a volume: superblock, the checkpoint in force, the current segments with their
//! summaries and journals, the orphans.

use crate::cache::Cache;
use crate::finding::{Code, Findings};
use crate::image::{Curseg, Image, Stop};
use crate::in_force::{self, InForce};
use crate::medium::Medium;
use crate::no_pack::{self, Pack};
use crate::no_super;
use crate::pack;
use crate::strays::Strays;
use crate::superblock;
use crate::traits;
use foldhash::{HashMap, HashMapExt};
use medfs_format::checkpoint::{CpFlags, RawOrphanBlock};
use medfs_format::sit::RawSitEntry;
use medfs_format::summary::{LOG_COUNT, Log, RawExtraInfo, RawJournal};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{Block, BlockAddr, Geometry, SegNo};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use zerocopy::IntoBytes;

/// What a volume has once: its superblock, and whether that was made anew.
#[derive(Clone)]
struct Fixed {
    sb: Box<Block>,
    bad_copies: Vec<BlockAddr>,
    g: Geometry,
    rebuilt: bool,
}

impl Fixed {
    /// The volume as of a checkpoint.
    fn at_pack<'d>(
        self,
        mut cache: Cache<'d>,
        pack: Pack,
        findings: &mut Findings,
    ) -> Result<Image<'d>, Stop> {
        let rebuilt = self.rebuilt;
        let written = pack::written(&mut cache, &self.g, &pack)?;
        let mut image = self.with(cache, pack);
        image.written = written;
        image.load_cursegs(findings)?;
        image.load_orphans(findings)?;
        image.find_lost_sit(findings)?;
        if rebuilt {
            traits::take(&mut image, findings)?;
        } else {
            traits::give_back(&mut image, findings)?;
        }
        Ok(image)
    }

    /// The volume as its newest nodes say, where a checkpoint behind that of `older` is lost, or all are. Where the
    /// logs of a new one find no room, it is as of the older one.
    fn past_pack<'d>(
        mut self,
        mut cache: Cache<'d>,
        older: Option<Pack>,
        findings: &mut Findings,
    ) -> Result<Image<'d>, Stop> {
        let mut told = findings.clone();
        let header = older.as_ref().map(|older| pack::header_in(&older.1));
        let written = match &older {
            Some(older) => pack::written(&mut cache, &self.g, older)?,
            None => RawExtraInfo::default(),
        };
        let mut pack = no_pack::reckoned(&mut cache, &self.g, header.as_ref())?;
        if let Some(older) = &older {
            pack.0 = older.0; // it stays until the other one is whole
        }
        if self.rebuilt {
            let mut asked = self.clone().with(cache, pack.clone());
            asked.reckoned = true;
            traits::take(&mut asked, &mut told)?;
            (cache, self.sb) = (asked.cache, asked.sb);
        }
        let mut image = self.clone().with(cache, pack);
        image.written = written;
        if reckon(&mut image, &mut told)? {
            *findings = told;
            return Ok(image);
        }
        let (Some(older), Some(header)) = (older, header) else {
            let text = "neither checkpoint pack is usable, and there is no room for the logs of a new one";
            findings.add(Code::NoCheckpoint, text);
            return Err(Stop::Fatal);
        };
        let version = header.checkpoint_ver.get();
        let text = format!(
            "there is no room for the logs of a new checkpoint: the volume is as of checkpoint {version}, and only what was \
             fsynced of all later changes is there"
        );
        findings.add(Code::CheckpointOlder, text);
        self.at_pack(image.cache, older, findings)
    }

    /// The volume with a pack, without what that leads to.
    fn with(self, cache: Cache<'_>, (pack, cp, unflipped): Pack) -> Image<'_> {
        let Fixed { sb, bad_copies, g, .. } = self;
        let features = RawSuperblock::in_block(&sb).features();
        let blank_nat = vec![0; g.nat_blocks().div_ceil(8) as usize];
        Image {
            cache,
            sb,
            bad_copies,
            g,
            features,
            pack,
            cp,
            unflipped,
            nat_journal: BTreeMap::new(),
            sit_journal: HashMap::new(),
            journals_may_be_lost: true,
            cursegs: Vec::new(),
            orphans: Vec::new(),
            written: RawExtraInfo::default(),
            nat_changes: BTreeMap::new(),
            blank_nat,
            lost_blocks: None,
            namers: None,
            all_summaries: false,
            lost_files: None,
            blank: BTreeSet::new(),
            unnamed: None,
            strays: Strays::default(),
            lost_sit: BTreeSet::new(),
            reckoned: false,
        }
    }
}

/// Begins logs behind the newest nodes, as no checkpoint tells where they go on; whether there is room for them.
fn reckon(image: &mut Image<'_>, findings: &mut Findings) -> io::Result<bool> {
    image.reckoned = true;
    image.find_lost_sit(findings)?;
    image.begin_logs(findings)
}

impl<'d> Image<'d> {
    pub(crate) fn load(medium: Medium<'d>, findings: &mut Findings) -> Result<Image<'d>, Stop> {
        let fixed = match superblock::in_force(&medium, findings)? {
            Some((sb, g, bad_copies)) => Fixed { sb, bad_copies, g, rebuilt: false },
            None => {
                let made = no_super::rebuild(&medium, findings)?;
                Fixed { sb: made.sb, bad_copies: vec![0, 1], g: made.g, rebuilt: true }
            }
        };
        let mut cache = Cache::new(medium);
        match in_force::pack(&mut cache, &fixed.g, findings)? {
            InForce::Whole(pack) => fixed.at_pack(cache, pack, findings),
            InForce::Outdated(pack) => fixed.past_pack(cache, Some(pack), findings),
            InForce::Lost => fixed.past_pack(cache, None, findings),
        }
    }

    fn load_cursegs(&mut self, findings: &mut Findings) -> Result<(), Stop> {
        let cp = self.checkpoint();
        let start = self.g.cp_pack(self.pack);
        let sums = pack::read_summaries(&mut self.cache, &self.g, &cp, start)?;
        let shown_empty = sums.show_empty_journals(&cp);
        for ((log, sum), known) in Log::ALL.into_iter().zip(sums.blocks).zip(sums.known) {
            let (segno, blkoff) = cp.curseg(log as usize);
            let alloc_type = cp.alloc_type[log as usize];
            self.cursegs.push(Curseg { segno, blkoff: u32::from(blkoff), alloc_type, sum, known });
        }
        debug_assert_eq!(self.cursegs.len(), LOG_COUNT);
        let is_whole = load_journals(self, &sums.nat_journal, &sums.sit_journal, findings);
        let unreadable = pack::journals_readable(&mut self.cache, &self.g, self.pack, &self.cp)?.is_err();
        self.journals_may_be_lost = !is_whole
            || unreadable
            || (self.nat_journal.is_empty() && self.sit_journal.is_empty() && !shown_empty);
        Ok(())
    }

    fn load_orphans(&mut self, findings: &mut Findings) -> Result<(), Stop> {
        let cp = self.checkpoint();
        if !cp.flags().contains(CpFlags::ORPHAN_PRESENT) {
            return Ok(());
        }
        let first = 1 + self.g.cp_payload;
        for i in first..cp.cp_pack_start_sum.get() {
            let addr = self.g.cp_pack(self.pack) + i;
            let block = self.cache.read(addr)?;
            match block.view::<RawOrphanBlock>().inodes(addr) {
                Ok(inos) => self.orphans.extend(inos),
                Err(e) => {
                    findings.add(Code::OrphanBlock, e.to_string());
                    // Behind the last one there are zeros.
                    let inos = block.view::<RawOrphanBlock>().ino.map(|ino| ino.get());
                    let listed = inos.into_iter().take_while(|&ino| ino != 0);
                    self.orphans.extend(listed.filter(|&ino| self.g.is_nid(ino)));
                }
            }
        }
        Ok(())
    }
}

/// Whether zeros are in place of the entry of a log's segment, which has at least the type of that log; that of hot
/// data is 0.
fn is_erased(image: &Image<'_>, segno: SegNo, entry: &RawSitEntry) -> bool {
    let is_typed = image.curseg_of(segno).is_some_and(|log| log > Log::HotData as usize);
    is_typed && entry.as_bytes().iter().all(|&byte| byte == 0)
}

/// Takes up the entries of both journals, but for those that contradict each other. Whether that is all.
fn load_journals(image: &mut Image<'_>, nat: &RawJournal, sit: &RawJournal, findings: &mut Findings) -> bool {
    for e in nat.sole_nat_entries() {
        if image.g.is_nid(e.nid.get()) {
            image.nat_journal.insert(e.nid.get(), e.entry);
        } else {
            findings.add(Code::Journal, format!("NAT journal: node id {} is out of range", e.nid));
        }
    }
    let mut is_whole = true;
    for e in sit.sole_sit_entries() {
        let segno = e.segno.get();
        if segno >= image.g.segment_count_main {
            findings.add(Code::Journal, format!("SIT journal: segment {segno} is out of range"));
        } else if is_erased(image, segno, &e.entry) {
            is_whole = false;
            findings.add(Code::Journal, format!("SIT journal: the entry of segment {segno} is zeros"));
        } else {
            image.sit_journal.insert(segno, e.entry);
        }
    }
    for (table, wrong) in [("NAT", nat.nat_entries().err()), ("SIT", sit.sit_entries().err())] {
        if let Some(wrong) = wrong {
            is_whole = false;
            findings.add(Code::Journal, format!("{table} {wrong}; entries are lost"));
        }
    }
    is_whole
}
