//! Manual pages, made from the command line's own definition.

use crate::args::{Cli, ManArgs};
use crate::{damaged, exit, finding_codes, options};
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_mangen::Man;
use roff::{Roff, bold, roman};
use std::io::Write;
use std::path::Path;

/// `medfs man`
pub(crate) fn man(args: &ManArgs) -> Result<u8> {
    let dir = &args.dir;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    pages(&command, dir)?;
    let more = [
        ("medfs.5", options::manual()),
        ("medfs-damaged.7", damaged::manual()),
        ("medfs-findings.7", finding_codes::manual()),
    ];
    for (name, text) in more {
        let page = dir.join(name);
        std::fs::write(&page, text).with_context(|| format!("cannot write {}", page.display()))?;
    }
    Ok(exit::SUCCESS)
}

/// The page of a command, and those of its sub-commands.
fn pages(command: &clap::Command, dir: &Path) -> Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, dir)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let page = dir.join(format!("{name}.1"));
    let written = page_of(command).and_then(|text| Ok(std::fs::write(&page, text)?));
    written.with_context(|| format!("cannot write {}", page.display()))
}

/// A page: what the command line says of itself, and how the command ends.
fn page_of(command: &clap::Command) -> Result<Vec<u8>> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let man = Man::new(command.clone())
        .title(&name)
        .date("")
        .source(concat!("medfs ", env!("CARGO_PKG_VERSION")))
        .manual("medfs");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.write_all(synopsis(command).as_bytes())?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    page.write_all(notes(command).as_bytes())?;
    page.write_all(exit_status(&name).as_bytes())?;
    Ok(page)
}

/// The command as its usage line has it.
fn synopsis(command: &clap::Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut page = Roff::new();
    page.control("SH", ["SYNOPSIS"]);
    for way in usage.trim_start_matches("Usage:").split(&format!("{name} ")).skip(1) {
        let way = way.split_whitespace().collect::<Vec<_>>().join(" ");
        page.text([bold(name), roman(format!(" {way}"))]);
        page.control("br", []);
    }
    page.to_roff()
}

/// What the help says at its end, without its own lines: the page is filled to the width of the terminal.
/// Mount options have a page of their own.
fn notes(command: &clap::Command) -> String {
    let mut page = Roff::new();
    let text = match command.get_name() {
        "mount" => "medfs(5) lists the mount options.".into(),
        _ => command.get_after_long_help().map(ToString::to_string).unwrap_or_default(),
    };
    if !text.is_empty() {
        page.control("SH", ["NOTES"]);
    }
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        page.control("PP", []);
        let as_it_is = paragraph.lines().any(|line| line.starts_with(' '));
        if as_it_is {
            page.control("nf", []);
            page.text([roman(paragraph)]);
            page.control("fi", []);
        } else {
            page.text([roman(paragraph.lines().collect::<Vec<_>>().join(" "))]);
        }
    }
    page.to_roff()
}

fn exit_status(name: &str) -> String {
    let mut page = Roff::new();
    page.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in exit::codes(name.trim_start_matches("medfs-")) {
        page.control("TP", []);
        page.text([bold(code.to_string())]);
        page.text([roman(*meaning)]);
    }
    page.control("TP", []);
    page.text([bold(exit::INTERRUPTED.to_string())]);
    page.text([roman("The command was interrupted with Ctrl-C.")]);
    page.to_roff()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_says_how_the_command_is_called_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        pages(&command, folder.path()).unwrap();
        let mut count = 0;
        for page in std::fs::read_dir(folder.path()).unwrap() {
            let path = page.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS"] {
                assert!(text.contains(section), "{}: {section}", path.display());
            }
            count += 1;
        }
        assert!(count > 20, "{count}");
        let get = std::fs::read_to_string(folder.path().join("medfs-get.1")).unwrap();
        assert!(get.contains("<IMAGE|DEVICE> <PATH>...") && get.contains("<DIRECTORY>"), "{get}");
        let fsck = std::fs::read_to_string(folder.path().join("medfs-fsck.1")).unwrap();
        assert!(fsck.contains("errors are left") && fsck.contains("Ctrl"), "{fsck}");
    }
}
