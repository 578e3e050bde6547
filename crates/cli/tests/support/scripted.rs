//! A scripted FTP and GridFTP server, honest except where a test overrides it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::scripted_data::{Data, Transfer, accept};

/// The modification time that the server reports.
const MODIFIED: &str = "20200102030405";

/// A server that handles each control connection on its own thread, until the test's process ends.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    shared: Arc<ServerState>,
}

/// A test's handler of commands: returns true if it has answered, false for the honest answer.
type CommandHandler = dyn Fn(&mut Session, &FtpCommand) -> bool + Send + Sync;

struct ServerState {
    play: Mutex<Arc<CommandHandler>>,
    file: Mutex<Arc<Vec<u8>>>,
    asks: Mutex<Vec<(usize, String)>>,
    stored: Mutex<Vec<u8>>,
}

/// A command: its verb in capitals, and its argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FtpCommand {
    pub(crate) verb: String,
    pub(crate) rest: String,
}

impl Scripted {
    /// Serves `file` correctly under every name.
    pub(crate) fn honest(file: Vec<u8>) -> Self {
        Self::new(file, |_, _| false)
    }

    /// Serves `file`; answers these verbs, of which the empty one is the greeting, with a text.
    pub(crate) fn answering<const N: usize>(file: Vec<u8>, replies: [(&'static str, &str); N]) -> Self {
        let replies = replies.map(|(verb, text)| (verb, text.to_owned()));
        Self::new(file, move |session, command| session.answer(command, &replies))
    }

    /// Serves `file` under every name; `play` handles commands first.
    pub(crate) fn new(
        file: Vec<u8>,
        play: impl Fn(&mut Session, &FtpCommand) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into(), file, play)
    }

    /// Like [`Self::new`], at an address of this host.
    pub(crate) fn at(
        host: IpAddr,
        file: Vec<u8>,
        play: impl Fn(&mut Session, &FtpCommand) -> bool + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(ServerState {
            play: Mutex::new(Arc::new(play)),
            file: Mutex::new(Arc::new(file)),
            asks: Mutex::default(),
            stored: Mutex::default(),
        });
        let all = shared.clone();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let shared = all.clone();
                std::thread::spawn(move || Session::new(stream, number, shared).serve());
            }
        });
        Self { address, shared }
    }

    pub(crate) fn change(&self, play: impl Fn(&mut Session, &FtpCommand) -> bool + Send + Sync + 'static) {
        *self.shared.play.lock().unwrap() = Arc::new(play);
    }

    /// Returns a URL for MODE E.
    pub(crate) fn url(&self) -> String {
        format!("ftp://{}/dir/file", self.address)
    }

    /// Returns all commands, with the number of their control connection.
    pub(crate) fn commands(&self) -> Vec<(usize, String)> {
        self.shared.asks.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, verb: &str) -> usize {
        self.commands().iter().filter(|(_, command)| command.split(' ').next() == Some(verb)).count()
    }

    pub(crate) fn file(&self) -> Arc<Vec<u8>> {
        self.shared.file.lock().unwrap().clone()
    }

    pub(crate) fn stored(&self) -> Vec<u8> {
        self.shared.stored.lock().unwrap().clone()
    }
}

pub(crate) struct Session {
    control: TcpStream,
    input: BufReader<TcpStream>,
    shared: Arc<ServerState>,
    /// Number of the connection, from 0.
    pub(crate) number: usize,
    /// The parallelism requested by OPTS RETR.
    pub(crate) parallelism: usize,
    pub(crate) extended: bool,
    port: Option<SocketAddr>,
    passive: Option<TcpListener>,
    /// MODE E data connections that the next transfer reuses, like Globus until the next PORT.
    kept: Vec<Data>,
    restart: u64,
}

impl Session {
    fn new(control: TcpStream, number: usize, shared: Arc<ServerState>) -> Self {
        // A failing test must not leave threads waiting for its client.
        control.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let input = BufReader::new(control.try_clone().unwrap());
        let (parallelism, extended, restart) = (1, false, 0);
        let (port, passive, kept) = (None, None, Vec::new());
        Self { control, input, shared, number, parallelism, extended, port, passive, kept, restart }
    }

    fn serve(&mut self) {
        self.play(&FtpCommand { verb: String::new(), rest: String::new() });
        loop {
            let mut line = Vec::new();
            if self.input.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
            self.shared.asks.lock().unwrap().push((self.number, line.clone()));
            let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
            self.play(&FtpCommand { verb: verb.to_ascii_uppercase(), rest: rest.to_owned() });
        }
    }

    fn play(&mut self, command: &FtpCommand) {
        let play = self.shared.play.lock().unwrap().clone();
        if !play(self, command) {
            self.honest(command);
        }
    }

    /// Sends a reply, followed by CR LF; ignores a closed connection.
    pub(crate) fn reply(&mut self, text: &str) {
        self.send(format!("{text}\r\n").as_bytes());
    }

    /// Answers a command that has a reply in the list; returns whether it has.
    pub(crate) fn answer<T: AsRef<str>>(&mut self, command: &FtpCommand, replies: &[(&str, T)]) -> bool {
        let reply = replies.iter().find(|(verb, _)| *verb == command.verb);
        reply.map(|(_, text)| self.reply(text.as_ref())).is_some()
    }

    /// Waits until the client closes the control connection.
    pub(crate) fn until_closed(&mut self) {
        let _ = self.input.read_to_end(&mut Vec::new());
    }

    /// Sends bytes on the control connection; returns whether the client accepts them.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.control.write_all(bytes).is_ok()
    }

    pub(crate) fn close(&mut self) {
        let _ = self.control.shutdown(Shutdown::Both);
    }

    pub(crate) fn file(&self) -> Arc<Vec<u8>> {
        self.shared.file.lock().unwrap().clone()
    }

    /// Replaces the file, for all sessions.
    pub(crate) fn replace_file(&self, file: Vec<u8>) {
        *self.shared.file.lock().unwrap() = Arc::new(file);
    }

    /// Answers honestly; an empty verb is the greeting.
    pub(crate) fn honest(&mut self, command: &FtpCommand) {
        let rest = command.rest.as_str();
        match command.verb.as_str() {
            "" => self.reply("220 scripted"),
            "USER" => self.reply("331 password"),
            "PASS" => self.reply("230 logged in"),
            "FEAT" => self.reply(
                "211-Extensions\r\n PARALLEL\r\n ERET\r\n ESTO\r\n SIZE\r\n MDTM\r\n REST STREAM\r\n \
                 MLST Type*;Size*;Modify*;\r\n MFMT\r\n UTF8\r\n EPRT\r\n EPSV\r\n211 End",
            ),
            "PWD" => self.reply("257 \"/\" is current"),
            "MODE" => {
                self.extended = rest.eq_ignore_ascii_case("E");
                self.reply("200 mode set");
            }
            "OPTS" => {
                if let Some((_, n)) = rest.split_once("Parallelism=") {
                    self.parallelism = n.split(',').next().and_then(|n| n.parse().ok()).unwrap_or(1);
                }
                self.reply("200 set");
            }
            "TYPE" | "NOOP" | "SBUF" | "DCAU" | "ALLO" | "CWD" | "PBSZ" | "PROT" => self.reply("200 done"),
            "SIZE" => self.reply(&format!("213 {}", self.file().len())),
            "MDTM" => self.reply(&format!("213 {MODIFIED}")),
            "MLST" => {
                let facts = format!("Type=file;Size={};Modify={MODIFIED}", self.file().len());
                self.reply(&format!("250-facts\r\n {facts}; {rest}\r\n250 End"));
            }
            "PORT" | "EPRT" => {
                self.port = address(rest);
                (self.passive, self.kept) = (None, Vec::new());
                self.reply("200 port");
            }
            "PASV" | "EPSV" => self.open_passive(&command.verb),
            "REST" => {
                self.restart = rest.parse().unwrap_or(0);
                self.reply("350 restarting");
            }
            "RETR" | "ERET" => self.send_file(command),
            "STOR" | "ESTO" => self.store(command),
            "RNFR" => self.reply("350 to what?"),
            "RNTO" | "DELE" | "MFMT" => self.reply("250 done"),
            "MKD" => self.reply("257 made"),
            "QUIT" => {
                self.reply("221 goodbye");
                self.close();
            }
            _ => self.reply("500 unknown"),
        }
    }

    /// Listens at the address of the control connection; returns the port.
    pub(crate) fn listen(&mut self) -> u16 {
        let listener = TcpListener::bind((self.control.local_addr().unwrap().ip(), 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        (self.passive, self.port, self.kept) = (Some(listener), None, Vec::new());
        port
    }

    fn open_passive(&mut self, verb: &str) {
        let port = self.listen();
        let [high, low] = port.to_be_bytes();
        self.reply(&match verb {
            "PASV" => format!("227 Entering Passive Mode (127,0,0,1,{high},{low})"),
            _ => format!("229 Entering Extended Passive Mode (|||{port}|)"),
        });
    }

    /// Returns the transfer that a RETR or ERET requests; `None` for other commands.
    pub(crate) fn transfer(&mut self, command: &FtpCommand) -> Option<Transfer> {
        let len = self.file().len() as u64;
        self.transfer_of(command, len)
    }

    /// Returns the transfer that a RETR or ERET requests of a file of `len` bytes; `None` for other
    /// commands.
    pub(crate) fn transfer_of(&mut self, command: &FtpCommand, len: u64) -> Option<Transfer> {
        match command.verb.as_str() {
            "RETR" => {
                let start = std::mem::take(&mut self.restart).min(len);
                Some(Transfer { range: start..len, base: 0 })
            }
            "ERET" => {
                let mut words = command.rest.split(' ').skip(1).map_while(|word| word.parse::<u64>().ok());
                let (start, count) = (words.next()?, words.next()?);
                Some(Transfer { range: start.min(len)..(start + count).min(len), base: start })
            }
            _ => None,
        }
    }

    /// Returns the address at which the client accepts data connections.
    pub(crate) fn client(&self) -> Option<SocketAddr> {
        self.port
    }

    /// Opens `n` data connections to the client's last PORT, or accepts one at the last PASV.
    pub(crate) fn data(&mut self, n: usize) -> Vec<Data> {
        if let Some(listener) = &self.passive {
            return accept(listener).into_iter().map(Data::new).collect();
        }
        let Some(port) = self.port else { return Vec::new() };
        (0..n).filter_map(|_| TcpStream::connect(port).ok()).map(Data::new).collect()
    }

    /// Returns the kept data connections, or opens `n`.
    pub(crate) fn connections(&mut self, n: usize) -> Vec<Data> {
        let kept = std::mem::take(&mut self.kept);
        if kept.is_empty() { self.data(n) } else { kept }
    }

    /// Keeps data connections for the next transfer.
    pub(crate) fn keep(&mut self, data: Vec<Data>) {
        self.kept = data;
    }

    fn send_file(&mut self, command: &FtpCommand) {
        let Some(transfer) = self.transfer(command) else { return self.reply("501 what?") };
        self.reply("150 sending");
        let file = self.file();
        let mut data = self.connections(if self.extended { self.parallelism } else { 1 });
        if data.is_empty() {
            return self.reply("425 no data connection");
        }
        let sent = if self.extended {
            let sent = transfer.send(&file, &mut data);
            self.kept = data;
            sent
        } else {
            let (start, end) = (transfer.range.start, transfer.range.end);
            data.remove(0).raw(&file[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()])
        };
        self.reply(if sent { "226 complete" } else { "426 data connection closed" });
    }

    fn store(&mut self, command: &FtpCommand) {
        let mut words = command.rest.split(' ').skip(1).filter(|_| command.verb == "ESTO");
        let base: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let base = base + usize::try_from(std::mem::take(&mut self.restart)).unwrap();
        self.reply("150 receiving");
        let mut stored = self.stored();
        let whole = self.receive(base, &mut stored);
        *self.shared.stored.lock().unwrap() = stored;
        self.reply(if whole { "226 stored" } else { "426 data connection closed" });
    }

    /// Receives a file at `base` over one or several data connections, without a reply; returns
    /// whether all of it arrived.
    pub(crate) fn receive(&mut self, base: usize, stored: &mut Vec<u8>) -> bool {
        let Some(listener) = self.passive.take() else { return false };
        if self.extended {
            return super::scripted_data::receive_blocks(&listener, base, stored);
        }
        let mut bytes = Vec::new();
        let read = accept(&listener).is_some_and(|mut data| data.read_to_end(&mut bytes).is_ok());
        super::scripted_data::put(stored, base, &bytes);
        read
    }

    pub(crate) fn stored(&self) -> Vec<u8> {
        self.shared.stored.lock().unwrap().clone()
    }
}

/// Parses the argument of PORT or EPRT.
fn address(text: &str) -> Option<SocketAddr> {
    if let Some(bars) = text.strip_prefix('|') {
        let fields: Vec<_> = bars.split('|').collect();
        return Some(SocketAddr::new(fields.get(1)?.parse().ok()?, fields.get(2)?.parse().ok()?));
    }
    let octets: Vec<u8> = text.split(',').map_while(|n| n.parse().ok()).collect();
    let [a, b, c, d, high, low] = octets.try_into().ok()?;
    Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), u16::from_be_bytes([high, low])))
}
