//! What a check found, as lines: of many findings of one kind in a row the first, and how many there are more.

use crate::words;
use medfs_fsck::{Finding, Report};

/// Findings of one kind in a row that are shown.
const SHOWN: usize = 20;

/// Prints the findings of a report, all of them where `verbose`.
pub(crate) fn print(report: &Report, verbose: bool) {
    for line in lines(&report.findings, if verbose { usize::MAX } else { SHOWN }) {
        outln!("{line}");
    }
    if report.suppressed > 0 {
        outln!("and {} that are not listed", words::count(report.suppressed, "more finding"));
    }
}

fn lines(findings: &[Finding], shown: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for run in findings.chunk_by(|a, b| a.code == b.code) {
        // A single one more takes no more room than its count would.
        let shown = if run.len() == shown.saturating_add(1) { run.len() } else { run.len().min(shown) };
        // A finding is a line, whatever the names in it.
        lines.extend(run[..shown].iter().map(|finding| finding.to_string().replace('\n', "\\n")));
        if shown < run.len() {
            lines.push(format!(
                "{} and {} more of this kind: --verbose lists them",
                run[0].code,
                run.len() - shown
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_fsck::Code;

    fn finding(code: Code, at: usize) -> Finding {
        Finding { code, severity: code.severity(), message: format!("number {at}") }
    }

    #[test]
    fn many_of_a_kind_in_a_row_are_folded() {
        let mut findings = vec![finding(Code::Inode, 0)];
        findings.extend((1..=25).map(|at| finding(Code::NatUnreachable, at)));
        findings.push(finding(Code::SitLeaked, 26));
        let folded = lines(&findings, SHOWN);
        assert_eq!(folded.len(), 1 + 20 + 1 + 1);
        assert_eq!(folded[20], "F0403 number 20");
        assert_eq!(folded[21], "F0403 and 5 more of this kind: --verbose lists them");
        assert_eq!(lines(&findings, usize::MAX).len(), 27);
        assert_eq!(lines(&findings[..22], SHOWN).len(), 22);
    }
}
