//! Real programs, driven unattended in a directory: git, a package manager, a headless browser. What they do
//! depends on the machine's versions of them; a program that is not installed is said so in one sentence.

use crate::error::{Error, Result};
use std::path::Path;
use std::process::{Command, Stdio};

/// A program that is driven.
pub struct Program {
    /// Its name on the command line.
    pub name: &'static str,
    /// A description of what is done with it.
    pub about: &'static str,
    /// Commands of which the first that is installed is used.
    commands: &'static [&'static str],
    run: fn(&Path, &str) -> Result<()>,
}

/// All of them.
pub static PROGRAMS: &[Program] = &[
    Program { name: "git", about: "a repository with fifty commits, then gc", commands: &["git"], run: git },
    Program {
        name: "packages",
        about: "thirty packages built, unpacked and removed with dpkg, in a root of its own",
        commands: &["dpkg-deb"],
        run: packages,
    },
    Program {
        name: "browser",
        about: "a headless browser's profile: ten pages with local storage",
        commands: &["chromium", "google-chrome", "chromium-browser"],
        run: browser,
    },
];

fn installed(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(command).is_file())
}

impl Program {
    /// The command that would be used; where there is none, the sentence that says so.
    pub fn command(&self) -> Result<&'static str> {
        self.commands.iter().copied().find(|c| installed(c)).ok_or_else(|| {
            Error::Unknown(format!(
                "{} is not available here: no {} is installed",
                self.name,
                self.commands.join(" or ")
            ))
        })
    }

    /// Drives it in `dir`, which must be a directory.
    pub fn run(&self, dir: &Path) -> Result<()> {
        (self.run)(dir, self.command()?)
    }
}

/// Runs a command in `dir` with nothing of the user's settings.
fn call(dir: &Path, command: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(command)
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_DATE", "1720000000 +0000")
        .env("GIT_COMMITTER_DATE", "1720000000 +0000")
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io(format!("starting {command}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Check(format!(
        "{command} {} failed: {}",
        args.join(" "),
        said.lines().last().unwrap_or("it says nothing")
    )))
}

fn put(path: &Path, content: &[u8]) -> Result<()> {
    std::fs::write(path, content).map_err(Error::io(format!("writing {}", path.display())))
}

fn folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(Error::io(format!("making {}", path.display())))
}

fn git(dir: &Path, git: &str) -> Result<()> {
    let mut random = crate::random::Random::new(1, "git");
    let mut writer = crate::content::Writer::new(1);
    let identity = ["-c", "user.name=lab", "-c", "user.email=lab@example.org", "-c", "core.fsync=all"];
    let root = dir.join("repository");
    folder(&root)?;
    call(&root, git, &["init", "-q"])?;
    for commit in 0..50 {
        for _ in 0..6 {
            let name = root.join(format!("source{}.txt", random.below(80)));
            let content = writer.make(&mut random, crate::content::Content::Text, 6000);
            put(&name, &content)?;
        }
        call(&root, git, &["add", "-A"])?;
        let message = format!("commit {commit}");
        call(&root, git, &[&identity[..], &["commit", "-q", "-m", &message]].concat())?;
    }
    call(&root, git, &["gc", "-q"])?;
    call(&root, git, &["fsck", "--no-progress"])
}

fn packages(dir: &Path, dpkg: &str) -> Result<()> {
    let mut random = crate::random::Random::new(1, "packages");
    let mut writer = crate::content::Writer::new(1);
    folder(&dir.join("root"))?;
    for n in 0..30 {
        let name = format!("lab{n}");
        let tree = dir.join(&name);
        folder(&tree.join("DEBIAN"))?;
        folder(&tree.join("usr/share").join(&name))?;
        let control = format!(
            "Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: lab\nDescription: package {n}\n"
        );
        put(&tree.join("DEBIAN/control"), control.as_bytes())?;
        for file in 0..12 {
            let content = writer.make(&mut random, crate::content::Content::Text, 9000);
            put(&tree.join("usr/share").join(&name).join(format!("{file}.txt")), &content)?;
        }
        let archive = format!("{name}.deb");
        call(dir, dpkg, &["--root-owner-group", "-b", &name, &archive])?;
        call(dir, dpkg, &["-x", &archive, "root"])?;
        std::fs::remove_dir_all(&tree).map_err(Error::io(format!("removing {}", tree.display())))?;
    }
    Ok(())
}

fn browser(dir: &Path, browser: &str) -> Result<()> {
    let profile = format!("--user-data-dir={}", dir.join("profile").display());
    for n in 0..10 {
        let page = dir.join(format!("page{n}.html"));
        let text = format!(
            "<title>{n}</title><script>for(let i=0;i<200;i++)localStorage['k'+i]='{n}-'+i.toString().repeat(40)</script>"
        );
        put(&page, text.as_bytes())?;
        let url = format!("file://{}", page.display());
        let args = ["--headless", "--no-sandbox", "--disable-gpu", &profile, "--dump-dom", &url];
        call(dir, browser, &args)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_one_sentence() {
        let none = Program { name: "none", about: "", commands: &["no-such-command-here"], run: git };
        let message = none.run(Path::new("/")).unwrap_err().to_string();
        assert_eq!(message, "none is not available here: no no-such-command-here is installed");
    }

    #[test]
    fn git_is_driven_where_it_is_installed() {
        let Some(git) = PROGRAMS.iter().find(|p| p.name == "git" && p.command().is_ok()) else {
            println!("git is not installed: nothing was checked");
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        git.run(dir.path()).unwrap();
        assert!(dir.path().join("repository/.git").is_dir());
    }
}
