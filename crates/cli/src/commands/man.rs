//! `longhaul man`.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

use crate::cli::Cli;

/// Prints the man page to stdout: the program's own, then one section a subcommand.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let mut page = Vec::new();
    let mut command = Cli::command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(&mut page).context("cannot write the man page")?;
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
        writeln!(page, ".SH \"longhaul {}\"", sub.get_name().to_uppercase())?;
        let man = clap_mangen::Man::new(sub.clone());
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
    }
    io::stdout().write_all(&page).context("cannot write the man page to stdout")?;
    Ok(ExitCode::SUCCESS)
}
