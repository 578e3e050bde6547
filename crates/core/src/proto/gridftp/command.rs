//! The commands of a client (RFC 959, 2228, 2428, 3659; GFD.20; GFD.47).

use std::fmt;
use std::net::{SocketAddr, SocketAddrV4};
use std::num::NonZeroU32;
use std::time::SystemTime;

use super::format_date;
use crate::proto::Malformed;
use crate::ranges::ByteRange;
use crate::units::Bytes;

/// A command. Paths are bytes, like file names.
///
/// `Display` formats the command for a log, without passwords, tokens and keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Command<'a> {
    /// Sends the user's name.
    User(&'a str),
    /// Sends the password, which may be empty.
    Pass(&'a str),
    /// Selects the transfer of unchanged bytes (TYPE I).
    TypeImage,
    /// Selects one data connection per file (MODE S), the default.
    ModeStream,
    /// Selects blocks over several data connections (MODE E).
    ModeExtended,
    /// Sets the number of data connections of a MODE E RETR. Zero is excluded, because it ends a
    /// session of Globus.
    Parallelism(NonZeroU32),
    /// Sends the address at which the client accepts a data connection.
    Port(SocketAddrV4),
    /// Sends the address at which the client accepts a data connection, IPv4 or IPv6.
    Eprt(SocketAddr),
    /// Requests an IPv4 address to connect to.
    Pasv,
    /// Requests a port to connect to.
    Epsv,
    /// Sets the start offset of the next transfer.
    Rest(u64),
    /// Retrieves a file.
    Retr(&'a [u8]),
    /// Retrieves a range of a file; block offsets are relative to its start.
    EretPartial(ByteRange, &'a [u8]),
    /// Stores at an offset of a file; block offsets are relative to that offset.
    EstoAdjusted(u64, &'a [u8]),
    /// Stores a file.
    Stor(&'a [u8]),
    /// Announces the length of the next file stored.
    Allo(Bytes),
    /// Requests a file's length.
    Size(&'a [u8]),
    /// Requests a file's modification time.
    Mdtm(&'a [u8]),
    /// Requests the facts of a file.
    Mlst(&'a [u8]),
    /// Lists a directory with the facts of its entries.
    Mlsd(&'a [u8]),
    /// Changes the current directory.
    Cwd(&'a [u8]),
    /// Lists the current directory.
    List,
    /// Creates a directory.
    Mkd(&'a [u8]),
    /// Removes a file.
    Dele(&'a [u8]),
    /// Selects the file to rename.
    Rnfr(&'a [u8]),
    /// Renames the selected file.
    Rnto(&'a [u8]),
    /// Sets a file's modification time, in whole seconds.
    Mfmt(SystemTime, &'a [u8]),
    /// Requests the checksum of a range, or of the whole file (`None`), by the named algorithm.
    Cksm(&'a str, Option<ByteRange>, &'a [u8]),
    /// Sets the size of the server's socket buffers for data connections.
    Sbuf(Bytes),
    /// Disables the authentication of data connections (DCAU N).
    DcauNone,
    /// Requires data connections to be authenticated with the identity of the session (DCAU A).
    DcauSelf,
    /// Sends the credential for data connections, in base64 (DCSC P).
    DcscCredential(&'a str),
    /// Requests integrity and confidentiality of data connections (PROT P).
    ProtPrivate,
    /// Sets the protection buffer's size; TLS uses 0.
    Pbsz(u32),
    /// Selects a security mechanism, such as "TLS" or "GSSAPI".
    Auth(&'a str),
    /// Sends a token of the security mechanism, in base64.
    Adat(&'a str),
    /// Requests the list of features.
    Feat,
    /// Does nothing.
    Noop,
}

impl Command<'_> {
    /// Encodes the command with its line end.
    ///
    /// # Errors
    /// [`Malformed`] if an argument cannot be expressed.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut line = self.line()?;
        if line.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)) {
            return Err(self.unusable("the argument has a line break or a NUL, which FTP cannot express"));
        }
        line.extend_from_slice(b"\r\n");
        Ok(line)
    }

    /// Returns the command's verb.
    pub fn verb(&self) -> &'static str {
        self.parts().0
    }

    /// Returns the verb, the arguments that are formatted here, and a last one, which must not be
    /// empty.
    fn parts(&self) -> (&'static str, Option<String>, Option<&[u8]>) {
        let first = |argument: &str| Some(argument.to_owned());
        match *self {
            Self::User(name) => ("USER", None, Some(name.as_bytes())),
            Self::Pass(password) => ("PASS", first(password), None),
            Self::TypeImage => ("TYPE", first("I"), None),
            Self::ModeStream => ("MODE", first("S"), None),
            Self::ModeExtended => ("MODE", first("E"), None),
            // Starting, minimum and maximum number; Globus uses only the first.
            Self::Parallelism(n) => ("OPTS", Some(format!("RETR Parallelism={n},{n},{n};")), None),
            Self::Port(address) => ("PORT", Some(comma_address(address)), None),
            Self::Eprt(address) => ("EPRT", Some(bar_address(address)), None),
            Self::Pasv => ("PASV", None, None),
            Self::Epsv => ("EPSV", None, None),
            Self::Rest(offset) => ("REST", Some(offset.to_string()), None),
            Self::Retr(path) => ("RETR", None, Some(path)),
            Self::EretPartial(range, path) => {
                ("ERET", Some(format!("P {} {}", range.start(), range.len().get())), Some(path))
            }
            Self::EstoAdjusted(offset, path) => ("ESTO", Some(format!("A {offset}")), Some(path)),
            Self::Stor(path) => ("STOR", None, Some(path)),
            Self::Allo(size) => ("ALLO", Some(size.get().to_string()), None),
            Self::Size(path) => ("SIZE", None, Some(path)),
            Self::Mdtm(path) => ("MDTM", None, Some(path)),
            Self::Mlst(path) => ("MLST", None, Some(path)),
            Self::Mlsd(path) => ("MLSD", None, Some(path)),
            Self::Cwd(path) => ("CWD", None, Some(path)),
            Self::List => ("LIST", None, None),
            Self::Mkd(path) => ("MKD", None, Some(path)),
            Self::Dele(path) => ("DELE", None, Some(path)),
            Self::Rnfr(path) => ("RNFR", None, Some(path)),
            Self::Rnto(path) => ("RNTO", None, Some(path)),
            Self::Mfmt(date, path) => ("MFMT", format_date(date), Some(path)),
            // The length -1 denotes the end of the file.
            Self::Cksm(algorithm, None, path) => ("CKSM", Some(format!("{algorithm} 0 -1")), Some(path)),
            Self::Cksm(algorithm, Some(range), path) => {
                ("CKSM", Some(format!("{algorithm} {} {}", range.start(), range.len().get())), Some(path))
            }
            Self::Sbuf(size) => ("SBUF", Some(size.get().to_string()), None),
            Self::DcauNone => ("DCAU", first("N"), None),
            Self::DcauSelf => ("DCAU", first("A"), None),
            Self::DcscCredential(credential) => ("DCSC", first("P"), Some(credential.as_bytes())),
            Self::ProtPrivate => ("PROT", first("P"), None),
            Self::Pbsz(size) => ("PBSZ", Some(size.to_string()), None),
            Self::Auth(mechanism) => ("AUTH", None, Some(mechanism.as_bytes())),
            Self::Adat(token) => ("ADAT", None, Some(token.as_bytes())),
            Self::Feat => ("FEAT", None, None),
            Self::Noop => ("NOOP", None, None),
        }
    }

    /// Returns the line without its end: the verb and its arguments.
    fn line(&self) -> Result<Vec<u8>, Malformed> {
        let (verb, first, last) = self.parts();
        if first.is_none() && matches!(self, Self::Mfmt(..)) {
            return Err(self.unusable("the date is before 1970 or after 9999"));
        }
        if last.is_some_and(<[u8]>::is_empty) {
            return Err(self.unusable("the argument is empty"));
        }
        let words = [Some(verb.as_bytes()), first.as_deref().map(str::as_bytes), last];
        Ok(words.into_iter().flatten().collect::<Vec<_>>().join(&b' '))
    }

    fn unusable(&self, why: &str) -> Malformed {
        Malformed::new(format!("{}: {why}", self.verb()))
    }
}

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(self, Self::Pass(_) | Self::Adat(_) | Self::DcscCredential(_)) {
            return write!(f, "{} ***", self.verb());
        }
        match self.line() {
            Ok(line) => write!(f, "{}", line.escape_ascii()),
            Err(_) => f.write_str(self.verb()),
        }
    }
}

impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({self})")
    }
}

/// Formats an address as `h,h,h,h,p,p` (RFC 959, section 4.1.2).
fn comma_address(address: SocketAddrV4) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{},{high},{low}", address.ip().to_string().replace('.', ","))
}

/// Formats an address as `|1|a.b.c.d|port|` or `|2|a:b::c|port|` (RFC 2428, section 2).
fn bar_address(address: SocketAddr) -> String {
    let family = if address.is_ipv4() { 1 } else { 2 };
    format!("|{family}|{}|{}|", address.ip(), address.port())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_are_encoded_as_in_the_specifications_and_shown_without_secrets() {
        let v4: SocketAddrV4 = "132.235.1.2:6275".parse().unwrap();
        let v6: SocketAddr = "[1080::8:800:200c:417a]:5282".parse().unwrap();
        let range = ByteRange::new(100, 350);
        let date = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (command, expected) in [
            (Command::User("anonymous"), "USER anonymous"),
            (Command::Pass(""), "PASS "),
            (Command::TypeImage, "TYPE I"),
            (Command::ModeExtended, "MODE E"),
            (Command::Parallelism(NonZeroU32::new(4).unwrap()), "OPTS RETR Parallelism=4,4,4;"),
            (Command::Port(v4), "PORT 132,235,1,2,24,131"),
            (Command::Eprt(v4.into()), "EPRT |1|132.235.1.2|6275|"),
            (Command::Eprt(v6), "EPRT |2|1080::8:800:200c:417a|5282|"),
            (Command::Rest(5), "REST 5"),
            (Command::EretPartial(range, b"/a b"), "ERET P 100 250 /a b"),
            (Command::EstoAdjusted(7, b"/x"), "ESTO A 7 /x"),
            (Command::Allo(Bytes::new(9)), "ALLO 9"),
            (Command::Mfmt(date, b"f"), "MFMT 19941106084937 f"),
            (Command::Cksm("MD5", None, b"f"), "CKSM MD5 0 -1 f"),
            (Command::Cksm("SHA256", Some(range), b"f"), "CKSM SHA256 100 250 f"),
            (Command::DcauNone, "DCAU N"),
            (Command::ProtPrivate, "PROT P"),
            (Command::Sbuf(Bytes::kib(4)), "SBUF 4096"),
            (Command::Pbsz(0), "PBSZ 0"),
            (Command::Adat("QQ=="), "ADAT QQ=="),
            (Command::Noop, "NOOP"),
        ] {
            assert_eq!(command.encode(), Ok(format!("{expected}\r\n").into_bytes()), "{expected}");
        }
        let old = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        for (command, why) in [
            (Command::Retr(b""), "RETR: the argument is empty"),
            (Command::Mfmt(old, b"f"), "MFMT: the date is before 1970 or after 9999"),
        ] {
            assert_eq!(command.encode(), Err(Malformed::new(why)));
        }
        for command in [Command::Pass("secret"), Command::Adat("secret"), Command::DcscCredential("secret")] {
            assert!(!format!("{command} {command:?}").contains("secret"));
        }
        assert_eq!(Command::Retr(b"a\x1b").to_string(), "RETR a\\x1b");
    }

    proptest! {
        #[test]
        fn no_argument_begins_another_command(argument in prop::collection::vec(any::<u8>(), 0..20), text in ".{0,8}") {
            let range = ByteRange::new(1, 2);
            for command in [
                Command::Retr(&argument),
                Command::EretPartial(range, &argument),
                Command::EstoAdjusted(1, &argument),
                Command::Mfmt(SystemTime::UNIX_EPOCH, &argument),
                Command::Cksm(&text, Some(range), &argument),
                Command::User(&text),
                Command::Pass(&text),
                Command::Auth(&text),
            ] {
                let Ok(line) = command.encode() else { continue };
                prop_assert!(line.ends_with(b"\r\n"));
                prop_assert!(!line[..line.len() - 2].iter().any(|b| matches!(b, b'\r' | b'\n' | 0)));
            }
        }
    }
}
