//! `longhaul config`: the effective options of commands without a command line, and the source of
//! each.

use std::process::ExitCode;

use clap::{ArgAction, Args, Command, CommandFactory};

use crate::cli::Cli;
use crate::config_file::{self, COMMANDS, ConfigFile, as_toml};
use crate::stdout;

/// The commands to show.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Show the options of these commands only
    #[arg(value_name = "COMMAND", value_parser = COMMANDS)]
    commands: Vec<String>,

    /// Show options too that are not set and have no default
    #[arg(long)]
    all: bool,
}

/// Prints the options in the format of config.toml.
pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let mut program = Cli::command();
    program.build();
    let file = match config_file::user_path() {
        Some(path) => ConfigFile::read(path, &program)?,
        None => ConfigFile::default(),
    };
    stdout::line(format_args!("# {}", file.path().display()));
    let wanted =
        |name: &&&str| args.commands.is_empty() || args.commands.iter().any(|wanted| wanted == **name);
    for command in COMMANDS.iter().filter(wanted).filter_map(|name| program.find_subcommand(name)) {
        show(command, &file, args.all);
    }
    Ok(ExitCode::SUCCESS)
}

fn show(command: &Command, file: &ConfigFile, all: bool) {
    stdout::line(format_args!("\n[{}]", command.get_name()));
    for arg in config_file::options(command) {
        let name = arg.get_long().unwrap_or_default();
        if let Some(setting) = file.get(command.get_name(), arg) {
            let from = format!("{}, line {}", file.path().display(), setting.line);
            // Commented out: without its secret the line would set another value.
            let comment = if setting.may_be_secret() { "# " } else { "" };
            stdout::line(format_args!("{:<40} # {from}", format!("{comment}{name} = {setting}")));
            continue;
        }
        let defaults = arg.get_default_values();
        let default = match (arg.get_action(), defaults) {
            (ArgAction::SetTrue, _) => Some("false".to_owned()),
            (_, [value]) => Some(as_toml(&value.to_string_lossy())),
            _ => None,
        };
        match default {
            Some(value) => stdout::line(format_args!("{:<40} # default", format!("{name} = {value}"))),
            None if all => stdout::line(format_args!("{:<40} # not set", format!("# {name} ="))),
            None => {}
        }
    }
}
