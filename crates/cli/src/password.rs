//! Prompts for a password on the terminal.

use std::io::{self, BufRead, Write};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

/// The byte of Ctrl-C.
const CTRL_C: u8 = 3;

/// Prints `prompt` on stderr, and reads a line from stdin without echo.
///
/// # Errors
/// [`io::ErrorKind::Interrupted`] on Ctrl-C; the terminal is restored.
pub(crate) fn read(prompt: &str) -> io::Result<String> {
    let hidden = EchoOff::begin()?;
    write!(io::stderr(), "{prompt}")?;
    let mut line = Vec::new();
    let mut stdin = io::stdin().lock();
    loop {
        let bytes = stdin.fill_buf()?;
        let end = bytes.iter().position(|byte| matches!(*byte, b'\n' | CTRL_C));
        let (taken, is_end) = end.map_or((bytes.len(), bytes.is_empty()), |at| (at + 1, true));
        line.extend_from_slice(&bytes[..taken]);
        stdin.consume(taken);
        if is_end {
            break;
        }
    }
    drop(hidden);
    // The newline was not echoed either.
    writeln!(io::stderr())?;
    match line.pop() {
        Some(CTRL_C) => Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted at the password")),
        Some(b'\n') => String::from_utf8(line)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the password is not UTF-8")),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "no password was entered")),
    }
}

/// Disables the terminal's echo; dropping this restores it.
struct EchoOff {
    before: Termios,
}

impl EchoOff {
    /// Disables echo and signals: Ctrl-C must not end the process and leave the terminal without
    /// echo.
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        hidden.special_codes[SpecialCodeIndex::VEOL] = CTRL_C;
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self { before })
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        // Fails only if the terminal is gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
