//! `~/.config/longhaul/config.toml`: default values of options.
//!
//! The file's options are inserted after the command's name and before the user's arguments, so
//! that clap parses both.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_lab::NO_CONFIG;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The commands whose options a file may set.
pub(crate) const COMMANDS: [&str; 4] = ["get", "put", "serve", "probe"];
/// Maximum size of the file in bytes.
const LONGEST: u64 = 1 << 20;
/// Options that apply to a single call only.
const NEVER_SET: [&str; 4] = ["help", "version", "verbose", "no_config"];

/// Options of a file.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    settings: Vec<Setting>,
}

/// An option that a file sets.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// The command of its table; `None` at the top of the file, for all commands with the option.
    command: Option<String>,
    name: String,
    value: Value,
    /// The line of the option.
    pub(crate) line: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Flag(bool),
    Text(String),
    Several(Vec<String>),
}

impl ConfigFile {
    /// Reads the user's file; a missing file sets nothing.
    ///
    /// # Errors
    /// Fails if the file is unreadable, or a line sets no option of `program`.
    pub(crate) fn read(path: PathBuf, program: &Command) -> Result<Self, Failure> {
        match read_text(&path) {
            Ok(text) => Self::parse(path, &text, program),
            // NotADirectory: a user without a home directory, as HOME=/dev/null of a service.
            Err(source)
                if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                Ok(Self { path, settings: Vec::new() })
            }
            // Below another user's directory, as the home that `sudo -u` keeps: this user has no
            // file.
            Err(source)
                if source.kind() == io::ErrorKind::PermissionDenied
                    && std::fs::symlink_metadata(&path).is_err() =>
            {
                Ok(Self { path, settings: Vec::new() })
            }
            Err(error) => {
                let message = format!("cannot read {}: {error}; --no-config ignores it", path.display());
                Err(Failure::new(FailureKind::Config, message))
            }
        }
    }

    fn parse(path: PathBuf, text: &str, program: &Command) -> Result<Self, Failure> {
        let line_at =
            |offset: usize| 1 + text.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count();
        let fail = |line: usize, why: String| {
            Failure::new(FailureKind::Config, format!("{}, line {line}: {why}", path.display()))
        };
        let table = DeTable::parse(text).map_err(|error| {
            let why = error.message().lines().next().unwrap_or_default().to_owned();
            fail(line_at(error.span().map_or(0, |span| span.start)), why)
        })?;
        let mut settings = Vec::new();
        for (key, value) in table.get_ref() {
            let (name, line) = (key.get_ref().to_string(), line_at(key.span().start));
            match value.get_ref() {
                DeValue::Table(options) => {
                    if !COMMANDS.contains(&name.as_str()) {
                        let known = COMMANDS.join("], [");
                        let why = format!("[{name}] is no table of options; there are [{known}]");
                        return Err(fail(line, why));
                    }
                    for (key, value) in options {
                        let line = line_at(key.span().start);
                        let setting = Setting::new(Some(name.clone()), key, value, line);
                        settings.push(setting.map_err(|why| fail(line, why))?);
                    }
                }
                _ => {
                    let setting = Setting::new(None, key, value, line);
                    settings.push(setting.map_err(|why| fail(line, why))?);
                }
            }
        }
        for setting in &settings {
            setting.check(program).map_err(|why| fail(setting.line, why))?;
        }
        Ok(Self { path, settings })
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file's setting of a command's option: the command's table takes precedence over
    /// the top of the file.
    pub(crate) fn get(&self, command: &str, arg: &Arg) -> Option<&Setting> {
        let name = arg.get_long()?;
        let of = |table: Option<&str>| {
            self.settings.iter().find(|setting| setting.command.as_deref() == table && setting.name == name)
        };
        of(Some(command)).or_else(|| of(None))
    }

    /// Returns the arguments for the file's options, except those that the user's arguments set or
    /// exclude.
    fn words(&self, command: &Command, given: &ArgMatches) -> Vec<OsString> {
        let is_given =
            |arg: &Arg| given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let settable = options(command).filter(|arg| {
            let excludes = |one: &Arg, other: &Arg| command.get_arg_conflicts_with(one).contains(&other);
            // Either of two options may declare the conflict.
            let excluded = options(command).filter(|other| is_given(other));
            let excluded = excluded.into_iter().any(|other| excludes(arg, other) || excludes(other, arg));
            !excluded && !is_given(arg)
        });
        let set = settable.filter_map(|arg| self.get(command.get_name(), arg));
        set.flat_map(Setting::words).collect()
    }
}

impl Setting {
    fn new(
        command: Option<String>,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        line: usize,
    ) -> Result<Self, String> {
        let name = key.get_ref().to_string();
        let text = |value: &DeValue<'_>| match value {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) => {
                let number = i128::from_str_radix(number.as_str(), number.radix()).ok()?;
                Some(number.to_string())
            }
            DeValue::Float(number) => Some(number.to_string()),
            _ => None,
        };
        let value = match value.get_ref() {
            DeValue::Boolean(is_set) => Value::Flag(*is_set),
            DeValue::Array(values) => {
                let values = values.iter().map(|value| text(value.get_ref()));
                let values: Option<Vec<_>> = values.collect();
                Value::Several(values.ok_or_else(|| format!("{name} takes texts or numbers"))?)
            }
            other => Value::Text(text(other).ok_or_else(|| format!("{name} takes no value of this kind"))?),
        };
        Ok(Self { command, name, value, line })
    }

    /// Returns whether the option may hold a password or a token.
    pub(crate) fn may_be_secret(&self) -> bool {
        secret_mark(&self.name).is_some()
    }

    /// Fails if no command has the option, or the value is invalid.
    fn check(&self, program: &Command) -> Result<(), String> {
        let commands = COMMANDS.iter().filter(|name| self.command.as_ref().is_none_or(|own| own == *name));
        let commands = commands.filter_map(|name| program.find_subcommand(name));
        let mut having = commands.filter_map(|command| {
            let arg = options(command).find(|arg| arg.get_long() == Some(&self.name))?;
            Some((command, arg))
        });
        let Some((command, arg)) = having.next() else {
            let of = self.command.as_ref().map_or_else(|| COMMANDS.join(", "), Clone::clone);
            return Err(format!("{} is no option of longhaul {of}", self.name));
        };
        match (&self.value, arg.get_action()) {
            (Value::Flag(_), ArgAction::SetTrue) => return Ok(()),
            (_, ArgAction::SetTrue) => return Err(format!("{} takes true or false", self.name)),
            (Value::Flag(_), _) => return Err(format!("{} takes a value, not true or false", self.name)),
            (Value::Several(_), action) if !matches!(action, ArgAction::Append) => {
                return Err(format!("{} takes one value", self.name));
            }
            _ => {}
        }
        // Other required arguments are missing, which does not matter here.
        let line = [program.get_name().into(), command.get_name().into()].into_iter().chain(self.words());
        match program.clone().try_get_matches_from(line) {
            Err(error) if is_of_value(error.kind()) => {
                let text = error.to_string();
                let why = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
                Err(why.to_owned())
            }
            _ => Ok(()),
        }
    }

    fn words(&self) -> Vec<OsString> {
        let word = |value: &String| OsString::from(format!("--{}={value}", self.name));
        match &self.value {
            Value::Flag(true) => vec![format!("--{}", self.name).into()],
            Value::Flag(false) => Vec::new(),
            Value::Text(value) => vec![word(value)],
            Value::Several(values) => values.iter().map(word).collect(),
        }
    }
}

impl fmt::Display for Setting {
    /// Formats the value as TOML, without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &String| without_secret(&self.name, text);
        match &self.value {
            Value::Flag(is_set) => write!(f, "{is_set}"),
            Value::Text(text) => f.write_str(&as_toml(&shown(text))),
            Value::Several(texts) => {
                write!(f, "{}", toml::Value::from(texts.iter().map(shown).collect::<Vec<_>>()))
            }
        }
    }
}

/// Reads a file of options; rejects anything but a short regular file, which reading could block
/// on.
fn read_text(path: &Path) -> io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut text = String::new();
    File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
    match text.len() as u64 > LONGEST {
        true => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is longer than 1 MiB")),
        false => Ok(text),
    }
}

/// Returns the delimiter before the secret in an option's value.
fn secret_mark(option: &str) -> Option<char> {
    match option {
        "user" | "header" => Some(':'),
        "cookie" => Some('='),
        _ => None,
    }
}

/// Removes the secret part of an option's value.
fn without_secret(option: &str, text: &str) -> String {
    let parts = secret_mark(option).and_then(|mark| Some((mark, text.split_once(mark)?)));
    parts.map_or_else(|| text.to_owned(), |(mark, (name, _))| format!("{name}{mark}..."))
}

/// Formats an argument as TOML: as a number if possible, otherwise as a string.
pub(crate) fn as_toml(text: &str) -> String {
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => text.to_owned(),
        _ => toml::Value::from(text).to_string(),
    }
}

fn is_of_value(kind: clap::error::ErrorKind) -> bool {
    use clap::error::ErrorKind::{
        InvalidUtf8, InvalidValue, TooManyValues, ValueValidation, WrongNumberOfValues,
    };
    matches!(kind, InvalidValue | ValueValidation | TooManyValues | WrongNumberOfValues | InvalidUtf8)
}

/// Returns the options of a command that a file may set.
pub(crate) fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    let settable = |arg: &&Arg| arg.get_long().is_some() && !NEVER_SET.contains(&arg.get_id().as_str());
    command.get_arguments().filter(settable)
}

/// Returns the path of the user's file: below $XDG_CONFIG_HOME, otherwise below ~/.config.
pub(crate) fn user_path() -> Option<PathBuf> {
    let directory = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = directory("XDG_CONFIG_HOME").or_else(|| Some(directory("HOME")?.join(".config")))?;
    Some(config.join("longhaul/config.toml"))
}

/// The user's file, and the options that it has set for this command.
static ORIGIN: OnceLock<(PathBuf, Vec<String>)> = OnceLock::new();

/// Names the user's file in advice about an option that it sets.
pub(crate) fn add_origins(advice: &mut [String]) {
    if let Some((path, names)) = ORIGIN.get() {
        advice.iter_mut().skip(1).for_each(|line| add_origin(line, path, names));
    }
}

fn add_origin(line: &mut String, path: &Path, names: &[String]) {
    let is_named = |name: &&String| {
        let option = format!("--{name}");
        line.match_indices(&option).any(|(at, _)| {
            !line[at + option.len()..].starts_with(|c: char| c == '-' || c.is_ascii_alphanumeric())
        })
    };
    if let Some(name) = names.iter().find(is_named) {
        line.push_str(&format!(" ({} sets {name})", path.display()));
    }
}

/// Inserts the options of the user's file into the arguments, after the command's name.
///
/// # Errors
/// As of [`ConfigFile::read`].
pub(crate) fn with_config(words: Vec<OsString>, program: &Command) -> Result<Vec<OsString>, Failure> {
    // Errors in the arguments are reported when they are parsed with the file's options.
    let Ok(matches) = program.clone().ignore_errors(true).try_get_matches_from(&words) else {
        return Ok(words);
    };
    let Some((name, given)) = matches.subcommand().filter(|(name, _)| COMMANDS.contains(name)) else {
        return Ok(words);
    };
    let (Some(path), Some(command)) = (user_path(), program.find_subcommand(name)) else { return Ok(words) };
    if given.get_flag("no_config") || std::env::var_os(NO_CONFIG).is_some_and(|set| !set.is_empty()) {
        return Ok(words);
    }
    let set = ConfigFile::read(path.clone(), program)?.words(command, given);
    let option = |word: &OsString| Some(word.to_str()?.strip_prefix("--")?.split('=').next()?.to_owned());
    let _ = ORIGIN.set((path, set.iter().filter_map(option).collect()));
    let at = words.iter().position(|word| word == name).map_or(words.len(), |at| at + 1);
    let (before, after) = words.split_at(at);
    Ok([before, &set, after].concat())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn program() -> Command {
        let mut program = Cli::command();
        program.build();
        program
    }

    fn file(text: &str) -> Result<ConfigFile, String> {
        ConfigFile::parse("config.toml".into(), text, &program()).map_err(|error| error.to_string())
    }

    fn words(text: &str, line: &[&str]) -> Vec<String> {
        let program = program();
        let line = ["longhaul", "get"].iter().chain(line);
        let matches = program.clone().ignore_errors(true).try_get_matches_from(line).unwrap();
        let given = matches.subcommand_matches("get").unwrap();
        let words = file(text).unwrap().words(program.find_subcommand("get").unwrap(), given);
        words.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn command_line_overrides_table_and_table_overrides_top() {
        let text = "retries = 9\nquiet = true\nlisten = \"127.0.0.1:1\"\nheader = [\"A: 1\", 'B: 2']\n\
            [get]\nretries = 7\n[put]\nstreams = 3\n";
        let mut set = words(text, &["http://h/f"]);
        set.sort();
        assert_eq!(set, ["--header=A: 1", "--header=B: 2", "--quiet", "--retries=7"]);
        let mut set = words(text, &["http://h/f", "-q", "--retries", "1", "-H", "C: 3"]);
        set.sort();
        assert_eq!(set, [""; 0]);
        assert_eq!(words("quiet = true\n[get]\nquiet = false\n", &["http://h/f"]), [""; 0]);
        assert_eq!(words("ipv6 = true\ntoken = \"t\"\n", &["-4", "--user", "a", "http://h/f"]), [""; 0]);
        // Advice about an option tells where it is set.
        let mut advice = "raise --limit, not --limit-x".to_owned();
        add_origin(&mut advice, Path::new("c.toml"), &["lim".to_owned(), "limit".to_owned()]);
        assert_eq!(advice, "raise --limit, not --limit-x (c.toml sets limit)");
    }

    #[test]
    fn bad_line_is_reported() {
        for (text, line, why) in [
            ("retries = 5\nnonsense = 1\n", 2, "nonsense is no option"),
            ("[get]\n\nlisten = 'x'\n", 3, "listen is no option of longhaul get"),
            ("[fetch]\na = 1", 1, "[fetch] is no table"),
            ("[[get]]\n", 1, ""),
            ("retries = 'many'\n", 1, "'many'"),
            ("retries = [1, 2]", 1, "one value"),
            ("quiet = 'yes'", 1, "true or false"),
            ("streams = true", 1, "takes a value"),
            ("streams = 2020-01-01", 1, "no value of this kind"),
            ("limit = '10M'", 1, "10M"),
            ("a = \n", 1, ""),
            ("retries = 5\nretries = 6", 2, "duplicate"),
            ("help = true", 1, "no option"),
        ] {
            let error = file(text).unwrap_err();
            assert!(error.starts_with(&format!("config.toml, line {line}: ")), "{text}: {error}");
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(file("").is_ok() && file("retries = 0x10\nlimit = '10Mbit'\n").is_ok());
    }
}
