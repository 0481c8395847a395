//! Help texts flow to the width of the terminal: what is written in lines of the source is a paragraph to its reader.

use clap::Command;

/// The same command, and those below it, with texts of paragraphs.
pub(crate) fn flowing(command: Command) -> Command {
    let text = command.get_after_long_help().map(|text| flow(&text.to_string()));
    let command = match text {
        Some(text) => command.after_long_help(text),
        None => command,
    };
    command.mut_subcommands(flowing)
}

/// A paragraph becomes a line. One with indented lines, such as examples, stays as it is.
pub(crate) fn flow(text: &str) -> String {
    let paragraph = |text: &str| match text.lines().any(|line| line.starts_with(' ')) {
        true => text.to_owned(),
        false => text.lines().collect::<Vec<_>>().join(" "),
    };
    text.split("\n\n").map(paragraph).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    #[test]
    fn paragraphs_flow_and_examples_stay() {
        assert_eq!(flow("one\ntwo\n\nfor\n  example\n\nend"), "one two\n\nfor\n  example\n\nend");
    }

    /// What stays as it is fits 80 columns: a terminal would break it a second time.
    #[test]
    fn no_line_breaks_twice() {
        fn check(command: &Command) {
            for text in [command.get_after_help(), command.get_after_long_help()].into_iter().flatten() {
                for paragraph in flow(&text.to_string()).split("\n\n") {
                    let fits = |line: &str| line.chars().count() <= 80;
                    let one_line = !paragraph.contains('\n');
                    assert!(one_line || paragraph.lines().all(fits), "{}: {paragraph}", command.get_name());
                }
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
