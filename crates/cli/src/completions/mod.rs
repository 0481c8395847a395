//! Completion scripts for shells: what the parser's definition says, and what it cannot say: mount options
//! with their values, and the directories that volumes are mounted on.

use crate::args::{Cli, CompletionsArgs};
use crate::{exit, options, output};
use anyhow::Result;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use medfs_format::superblock::Feature;
use std::io::Write;

/// Prints the mount points of this machine's volumes.
const MOUNTED: &str = "awk '$3 ~ /medfs$/ { print $2 }' /proc/self/mounts 2>/dev/null";

/// `medfs completions`
pub(crate) fn completions(args: &CompletionsArgs) -> Result<u8> {
    output::stdout().write_all(script(args.shell).as_bytes())?;
    Ok(exit::SUCCESS)
}

fn script(shell: Shell) -> String {
    let mut generated = Vec::new();
    clap_complete::generate(shell, &mut visible(&Cli::command()), "medfs", &mut generated);
    let generated = String::from_utf8_lossy(&generated).into_owned();
    match shell {
        Shell::Bash => generated + &filled(include_str!("bash.in")),
        Shell::Zsh => zsh(&generated),
        Shell::Fish => generated + &filled(include_str!("fish.in")),
        _ => generated,
    }
}

/// The same command without what is hidden: a generator would show it.
fn visible(command: &Command) -> Command {
    let mut copy = Command::new(command.get_name().to_owned());
    copy = copy.disable_help_flag(command.is_disable_help_flag_set());
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        copy = copy.version(version.to_owned());
    }
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    copy.args(arguments.cloned()).subcommands(below.map(visible))
}

/// What is added to a generated script.
fn filled(template: &str) -> String {
    let template = template.replace("@OPTIONS@", &quoted(&options::completed()));
    template.replace("@FEATURES@", &quoted(&features())).replace("@MOUNTED@", MOUNTED)
}

/// Words as all three shells take them: a `^` means something else to zsh's completion.
fn quoted(words: &[String]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

/// The words of `mkfs -O`.
fn features() -> Vec<String> {
    let names = medfs_mkfs::feature_names(Feature::all());
    let without = names.iter().map(|name| format!("^{name}"));
    ["default", "none"].map(str::to_owned).into_iter().chain(names.iter().cloned()).chain(without).collect()
}

/// With our functions in place of files, and the subject of `medfs help` that is no command.
fn zsh(generated: &str) -> String {
    let subjects = "_medfs__subcmd__help_commands() {\n    local commands; commands=(\n";
    let mounted = ":dir -- Directory of a mounted volume:";
    let script = generated
        .replace(":OPTION,...:_default'", ":OPTION,...:_medfs_mount_options'")
        .replace(":FEATURE,...:_default'", ":FEATURE,...:_medfs_features'")
        .replace(subjects, &format!("{subjects}'damaged:What to do about a damaged card' \\\n"))
        .replace(&format!("{mounted}_files -/"), &format!("{mounted}_medfs_mounted"));
    // Its last lines run it.
    let end = script.find("if [ \"$funcstack[1]\"").unwrap_or(script.len());
    let (functions, call) = script.split_at(end);
    format!("{functions}{}\n{call}", filled(include_str!("zsh.in")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command as System;

    #[test]
    fn what_is_hidden_is_not_completed() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            for hidden in ["watchdog", "--daemon", "-l daemon", "--extra", "-l extra"] {
                assert!(!script.contains(hidden), "{shell}: {hidden}");
            }
            assert!(script.contains("delta=full"), "{shell}");
        }
    }

    #[test]
    fn zsh_offers_what_the_parser_does_not_know() {
        let script = script(Shell::Zsh);
        for ours in [
            ":OPTION,...:_medfs_mount_options'",
            ":FEATURE,...:_medfs_features'",
            ":dir -- Directory of a mounted volume:_medfs_mounted'",
            "commands=(\n'damaged:",
            "'^lost_found'",
            "'delta=full'",
        ] {
            assert!(script.contains(ours), "{ours}");
        }
        match System::new("zsh").args(["-n", "-c", &script]).output() {
            Ok(judged) => assert_eq!(String::from_utf8_lossy(&judged.stderr), ""),
            Err(_) => eprintln!("SKIPPED: zsh is not installed"),
        }
    }

    #[test]
    fn fish_offers_what_the_parser_does_not_know() {
        let script = script(Shell::Fish);
        for (line, offered) in [
            ("medfs mkfs -O default,compr", "default,compression\n"),
            ("medfs mkfs -O ^lost", "^lost_found\n"),
            ("medfs mount -o ro,delta=f", "ro,delta=full\n"),
            ("medfs help dam", "damaged\tWhat to do about a damaged card\n"),
        ] {
            let test = format!("{script}\ncomplete -C '{line}'");
            match System::new("fish").args(["--no-config", "-c", &test]).output() {
                Ok(shell) => assert_eq!(String::from_utf8_lossy(&shell.stdout), offered, "{line}"),
                Err(_) => return eprintln!("SKIPPED: fish is not installed"),
            }
        }
    }

    /// What bash offers for a line with the cursor at its end.
    fn offered(line: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("medfs"), script(Shell::Bash)).unwrap();
        // As readline divides a line: '=' is a word of its own.
        let spaced = line.replace('=', " = ");
        let mut words: Vec<String> = spaced.split_whitespace().map(|word| format!("'{word}'")).collect();
        if line.ends_with(' ') {
            words.push("''".into());
        }
        let test = format!(
            "compopt() {{ :; }}; source ./medfs; COMP_WORDS=({}); COMP_CWORD={}; COMP_LINE='{line}'; COMP_POINT={}\n\
             _medfs_first medfs \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words.len() - 1,
            line.len()
        );
        let shell = System::new("bash").args(["-c", &test]).current_dir(dir.path()).output().unwrap();
        assert!(shell.stderr.is_empty(), "{}", String::from_utf8_lossy(&shell.stderr));
        String::from_utf8(shell.stdout)
            .unwrap()
            .lines()
            .filter(|l| !l.is_empty())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn bash_offers_options_and_leaves_files_to_itself() {
        assert_eq!(offered("medfs mount -o delta="), ["compact", "full", "inline", "off"]);
        assert_eq!(offered("medfs mount -o delta=c"), ["compact"]);
        assert_eq!(offered("medfs mount -o ro,noatime,durability=a"), ["adaptive"]);
        assert_eq!(offered("medfs mount -o delta=full,noat"), ["full,noatime"]);
        assert_eq!(offered("medfs mount -o fsync"), ["fsync_mode="]);
        let compress = ["fpc", "lz4", "lzo", "lzo-rle", "off", "zstd"];
        assert_eq!(offered("medfs mount -o compress="), compress);
        assert_eq!(offered("medfs mkfs -O default,compr"), ["default,compression"]);
        assert_eq!(offered("medfs mkfs --features=default,^lost"), ["default,^lost_found"]);
        assert!(offered("medfs mkfs -O ").contains(&"none".to_owned()));
        assert_eq!(offered("medfs help d"), ["dump", "durability", "demo", "damaged"]);
        assert!(offered("medfs mount -o ").contains(&"noatime".to_owned()));
        for line in
            ["medfs fsck ", "medfs mount ca", "medfs get ", "medfs get card.img ", "medfs put card.img f"]
        {
            assert_eq!(offered(line), Vec::<String>::new(), "{line}: files");
        }
        assert!(offered("medfs fsck --r").contains(&"--repair".to_owned()));
        assert!(offered("medfs ").contains(&"mkfs".to_owned()));
    }
}
