//! `tenure completions` and `tenure man`: what the shell and `man` want to know.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap_complete::Shell;

use crate::exit::{self, Failure};
use crate::output::result;

/// Print completions for a shell, to be sourced or saved where the shell looks for them.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure completions bash > ~/.local/share/bash-completion/completions/tenure")]
pub(crate) struct Completions {
    #[arg(value_enum)]
    shell: Shell,
}

/// Print the manual page, or write one page per command into a folder.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure man | man -l -
  tenure man ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// The folder, made if it is missing; without one, the main page goes to stdout.
    folder: Option<PathBuf>,
}

pub(crate) fn completions(
    arguments: &Completions,
    mut tree: clap::Command,
) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut tree, "tenure", &mut script);
    result(&String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(arguments: &Man, tree: clap::Command) -> Result<ExitCode, Failure> {
    let mut tree = tree.disable_help_subcommand(true);
    tree.build();
    let tree = with_usage(tree);
    let written = match &arguments.folder {
        Some(folder) => {
            std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(tree, folder))
        }
        None => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(tree).render(&mut page);
            result(&String::from_utf8_lossy(&page));
            rendered
        }
    };
    written.map_err(|error| {
        let place = arguments.folder.as_deref().unwrap_or_else(|| Path::new("stdout")).display();
        let why = format!("cannot write the pages to {place}: {error}; choose another folder");
        Failure::new(exit::CANNOT_WRITE, why)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The synopsis of each page is the usage line of `--help`. The one that pages get otherwise has
/// the arguments in the order of the help's sections, and options without their values.
fn with_usage(mut command: clap::Command) -> clap::Command {
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    command.mut_subcommands(with_usage).override_usage(usage)
}
