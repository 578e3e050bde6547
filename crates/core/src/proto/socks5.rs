//! The client side of SOCKS 5 (RFC 1928) with username/password authentication (RFC 1929): encoding
//! of messages, decoding of answers.

use std::net::SocketAddr;

use thiserror::Error;

use super::netrc::Login;

/// The destination of a connection through a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocksTarget {
    /// A host name, resolved by the proxy, and a port.
    Name(String, u16),
    /// An IP address and a port.
    Address(SocketAddr),
}

/// A handshake with a proxy: the client sends [`greeting`](Self::greeting), then the results of
/// [`receive`](Self::receive).
#[derive(Debug)]
pub struct SocksHandshake {
    target: SocksTarget,
    login: Option<Login>,
    step: Step,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Method,
    Login,
    Reply,
}

/// The next step of a handshake.
#[derive(Debug, PartialEq, Eq)]
pub enum SocksStep {
    /// More bytes are needed.
    More,
    /// An answer of this length was read; send the message.
    Send(usize, Vec<u8>),
    /// An answer of this length was read, and the proxy has connected.
    Connected(usize),
}

/// The reason why a proxy does not connect.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SocksError {
    /// The answer is not SOCKS 5.
    #[error("its answer is not SOCKS 5; check the proxy's scheme and port")]
    NotSocks,
    /// The proxy accepts none of the offered methods.
    #[error("it requires a login; write socks5://USER:PASSWORD@HOST:PORT")]
    NeedsLogin,
    /// The proxy refuses the login.
    #[error("it refuses the login")]
    Denied,
    /// The host name, the user or the password is longer than 255 bytes.
    #[error("a host's name, a user and a password have 255 bytes at most")]
    TooLong,
    /// The proxy could not connect; the code is that of RFC 1928, section 6.
    #[error("it did not connect: {}", reason(*.0))]
    Refused(u8),
}

fn reason(code: u8) -> &'static str {
    match code {
        2 => "its rules do not allow that",
        3 => "the network is unreachable",
        4 => "the host is unreachable, or unknown",
        5 => "the connection was refused",
        6 => "the time to live expired",
        7 | 8 => "it does not know the command or the type of address",
        _ => "it failed",
    }
}

const VERSION: u8 = 5;

impl SocksHandshake {
    /// Creates a handshake.
    ///
    /// # Errors
    /// [`SocksError::TooLong`].
    pub fn new(target: SocksTarget, login: Option<Login>) -> Result<Self, SocksError> {
        let fits = |text: &str| text.len() <= 255;
        let name_fits = !matches!(&target, SocksTarget::Name(name, _) if !fits(name));
        if !name_fits || login.as_ref().is_some_and(|login| !fits(&login.user) || !fits(&login.password)) {
            return Err(SocksError::TooLong);
        }
        Ok(Self { target, login, step: Step::Method })
    }

    /// Returns the first message.
    pub fn greeting(&self) -> Vec<u8> {
        if self.login.is_some() { vec![VERSION, 2, 0, 2] } else { vec![VERSION, 1, 0] }
    }

    /// Parses the front of the received bytes.
    ///
    /// # Errors
    /// [`SocksError`].
    pub fn receive(&mut self, bytes: &[u8]) -> Result<SocksStep, SocksError> {
        match self.step {
            Step::Method => match bytes {
                [VERSION, 0, ..] => Ok(self.request()),
                [VERSION, 2, ..] => match self.login.as_ref() {
                    Some(login) => {
                        let message = login_message(login);
                        self.step = Step::Login;
                        Ok(SocksStep::Send(2, message))
                    }
                    None => Err(SocksError::NeedsLogin),
                },
                [VERSION, ..] if bytes.len() >= 2 => {
                    Err(if self.login.is_some() { SocksError::Denied } else { SocksError::NeedsLogin })
                }
                [] | [VERSION] => Ok(SocksStep::More),
                _ => Err(SocksError::NotSocks),
            },
            Step::Login => match bytes {
                [_, 0, ..] => Ok(self.request()),
                [_, _, ..] => Err(SocksError::Denied),
                _ => Ok(SocksStep::More),
            },
            Step::Reply => reply(bytes),
        }
    }

    fn request(&mut self) -> SocksStep {
        self.step = Step::Reply;
        let mut message = vec![VERSION, 1, 0];
        let port = match &self.target {
            SocksTarget::Name(name, port) => {
                message.extend([3, u8::try_from(name.len()).unwrap_or(u8::MAX)]);
                message.extend(name.as_bytes());
                *port
            }
            SocksTarget::Address(SocketAddr::V4(address)) => {
                message.push(1);
                message.extend(address.ip().octets());
                address.port()
            }
            SocksTarget::Address(SocketAddr::V6(address)) => {
                message.push(4);
                message.extend(address.ip().octets());
                address.port()
            }
        };
        message.extend(port.to_be_bytes());
        SocksStep::Send(2, message)
    }
}

fn login_message(login: &Login) -> Vec<u8> {
    let mut message = vec![1];
    for text in [&login.user, &login.password] {
        message.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        message.extend(text.as_bytes());
    }
    message
}

/// Parses the reply to a request: version, code, 0, an address of one of three types, and a port.
fn reply(bytes: &[u8]) -> Result<SocksStep, SocksError> {
    let length = match bytes {
        [VERSION, code, ..] if *code != 0 => return Err(SocksError::Refused(*code)),
        [VERSION, _, _, 1, ..] => 10,
        [VERSION, _, _, 4, ..] => 22,
        [VERSION, _, _, 3, length, ..] => 7 + usize::from(*length),
        [VERSION, _, _, 3] | [] | [VERSION] | [VERSION, _] | [VERSION, _, _] => return Ok(SocksStep::More),
        _ => return Err(SocksError::NotSocks),
    };
    Ok(if bytes.len() < length { SocksStep::More } else { SocksStep::Connected(length) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_follows_the_login_and_its_name_is_resolved_by_the_proxy() {
        let mut socks = SocksHandshake::new(SocksTarget::Name("h".into(), 80), None).unwrap();
        assert_eq!(socks.greeting(), [5, 1, 0]);
        assert_eq!(socks.receive(&[5]), Ok(SocksStep::More));
        assert_eq!(socks.receive(&[5, 0]), Ok(SocksStep::Send(2, vec![5, 1, 0, 3, 1, b'h', 0, 80])));
        assert_eq!(socks.receive(&[5, 0, 0, 1, 0, 0, 0, 0, 0]), Ok(SocksStep::More));
        assert_eq!(socks.receive(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0, 9]), Ok(SocksStep::Connected(10)));
        // With a login.
        let login = Login { user: "a".into(), password: "bc".into() };
        let target = SocksTarget::Address("[::1]:1".parse().unwrap());
        let mut socks = SocksHandshake::new(target, Some(login)).unwrap();
        assert_eq!(socks.receive(&[5, 2]), Ok(SocksStep::Send(2, vec![1, 1, b'a', 2, b'b', b'c'])));
        let Ok(SocksStep::Send(2, request)) = socks.receive(&[1, 0]) else { panic!("no request") };
        assert_eq!((request.len(), request[3]), (22, 4));
    }

    #[test]
    fn refusals_and_other_protocols_are_different_errors() {
        let socks = || SocksHandshake::new(SocksTarget::Name("h".into(), 80), None).unwrap();
        assert_eq!(socks().receive(&[5, 2]), Err(SocksError::NeedsLogin));
        assert_eq!(socks().receive(&[5, 255]), Err(SocksError::NeedsLogin));
        assert_eq!(socks().receive(b"HTTP/1.1 400"), Err(SocksError::NotSocks));
        assert_eq!(reply(&[5, 5, 0, 1]), Err(SocksError::Refused(5)));
        assert_eq!(reply(&[5, 0, 0, 9]), Err(SocksError::NotSocks));
        assert!(SocksHandshake::new(SocksTarget::Name("h".repeat(256), 80), None).is_err());
    }
}
