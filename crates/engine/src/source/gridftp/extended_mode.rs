//! MODE E: chunk after chunk over one control connection, each over all data connections, which the server opens.
//!
//! ```text
//!  control  > OPTS PORT ERET SIZE MDTM   ERET SIZE MDTM              < 150 226 213 213  150 226 213 213
//!  data                                               blocks EOD | blocks EOD  (on each connection, one transfer behind the other)
//! ```
//!
//! The next chunk is requested while the one before it is sent, so that the line does not idle. A chunk is complete with the reply
//! 226, an end of data from every connection that the server announces, and every byte; it is proved by the look at the file behind it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use longhaul_core::proto::gridftp::{BlockHeader, Command, LedgerError, Reply, TransferLedger};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::channel::{Channel, ChannelEvent};
use super::data_listener::DataListener;
use super::data_path::DataPath;
use super::error::FtpError;
use super::sessions::{Mode, Session};
use super::unproved::compare;
use super::worker::{Place, unreached};
use crate::connect::{Received, SocketSettings};
use crate::delivery_meter::LEAST_DELIVERY;
use crate::source::StreamPeer;
use crate::transfer::error::SourceError;
use crate::transfer::{Intake, Stream, recv_buffer};

/// Chunks requested and not complete: several where a chunk is smaller than what the path holds.
const MOST_AHEAD: usize = 8;
/// A server that has opened no data connection by then cannot: SYNs are sent again after 1, 3 and 7 s.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// After a data connection breaks, the server's own report is waited for so long.
const REPORT_PATIENCE: Duration = Duration::from_secs(2);
/// A connection beyond those asked for is read where nothing else has come for so long.
const STUCK: Duration = Duration::from_millis(500);
/// How often what is left in sockets is read after the control connection was lost: a server that goes on sending is not followed.
const DRAIN_ROUNDS: usize = 256;
/// Calls to receive from one connection before the others have their turn.
const CALLS_IN_TURN: usize = 8;
/// How much is read at once of what another stream has taken over.
const DISCARD: usize = 64 << 10;

/// A chunk that was requested.
struct Transfer {
    number: u64,
    /// Where it lies in the file; blocks are counted from its start.
    range: ByteRange,
    ledger: TransferLedger,
    requested: Instant,
    /// 226 has arrived.
    replied: bool,
    /// The file was as described after it.
    proved: bool,
}

/// A reply that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// To a command that prepares transfers.
    Setup(&'static str),
    /// To the request of a chunk.
    Transfer(u64),
    /// To one command of the look behind a chunk.
    Look(u64),
}

/// A session, a stream and what is under way.
struct Exchange<'a, 'p, 's, 't> {
    place: &'a mut Place<'p, 's>,
    session: &'a mut Session,
    stream: &'a mut Stream<'t>,
    /// One for each channel of the session's data path.
    intakes: Vec<Intake<'t>>,
    transfers: VecDeque<Transfer>,
    next_number: u64,
    due: VecDeque<Due>,
    look: Vec<Reply>,
    /// When the exchange last made progress, and the bytes since.
    mark: (Instant, u64),
    /// When data last arrived.
    last_data: Instant,
    /// Why a data connection is of no more use, and since when that is known.
    broken: Option<(FtpError, Instant)>,
}

/// Fetches chunks until nothing is left to lease; returns whether the session can be kept.
pub(super) fn fetch(
    place: &mut Place<'_, '_>,
    session: &mut Session,
    stream: &mut Stream<'_>,
) -> Result<bool, SourceError> {
    if let Some(data) = &mut session.data {
        data.restart_turns();
    }
    let source = place.worker.source;
    let mut exchange = Exchange {
        place,
        session,
        stream,
        intakes: Vec::new(),
        transfers: VecDeque::new(),
        next_number: 0,
        due: VecDeque::new(),
        look: Vec::new(),
        mark: (Instant::now(), 0),
        last_data: Instant::now(),
        broken: None,
    };
    exchange.take_in_channels();
    let done = exchange.run();
    if let Err(Failure::Ftp(FtpError::Closed { .. } | FtpError::Receive { .. } | FtpError::Busy { .. })) =
        done
    {
        exchange.drain();
    }
    let holds_window = exchange.intakes.iter().any(Intake::holds_window);
    drop(exchange);
    match done {
        Ok(()) => {
            if holds_window {
                session.data = None;
            }
            Ok(true)
        }
        Err(Failure::Ftp(error)) if error.is_unreached() => Err(unreached(source, &error)),
        Err(Failure::Ftp(error)) => Err(error.into()),
        Err(Failure::Source(error)) => Err(error),
    }
}

/// Why an exchange ends early.
enum Failure {
    Ftp(FtpError),
    Source(SourceError),
}

impl From<FtpError> for Failure {
    fn from(error: FtpError) -> Self {
        Self::Ftp(error)
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl Exchange<'_, '_, '_, '_> {
    fn run(&mut self) -> Result<(), Failure> {
        loop {
            self.request_ahead()?;
            if self.transfers.is_empty() && self.due.is_empty() {
                self.intakes.iter_mut().for_each(Intake::flush);
                if !self.stream.wait_for_work() {
                    return Ok(());
                }
                self.mark = (Instant::now(), 0);
                continue;
            }
            self.serve()?;
            self.retire()?;
            self.check_progress()?;
        }
    }

    /// Receives what has arrived by now, after the control connection was lost: it need not come again.
    fn drain(&mut self) {
        for _ in 0..DRAIN_ROUNDS {
            let ready = self.wait(Duration::ZERO);
            // From the last to the first, as above.
            let all = ready.channels.iter().rev().try_for_each(|index| self.serve_channel(*index));
            if ready.channels.is_empty() || all.is_err() {
                return;
            }
        }
    }

    fn at(&self) -> String {
        self.place.door.at().to_owned()
    }

    fn rate(&self) -> Rate {
        sum(self.intakes.iter().map(Intake::rate))
    }

    /// Requests chunks until enough is outstanding. The number of connections changes only between two chunks: the server ignores
    /// another number for connections that are open.
    fn request_ahead(&mut self) -> Result<(), Failure> {
        while self.broken.is_none() {
            let streams = self.stream.wanted_streams().max(1);
            let fits = self.session.data.as_ref().is_some_and(|data| data.parallelism == streams);
            if !self.transfers.is_empty() {
                let rtts = self.intakes.iter().map(Intake::data_rtt);
                let rtt = rtts.max().or_else(|| self.session.control.rtt()).unwrap_or_default();
                let expected = sum(self.intakes.iter().map(Intake::expected_rate));
                let enough = self.stream.outstanding_target_over(expected, rtt);
                if !fits || self.transfers.len() >= MOST_AHEAD || self.stream.outstanding().0 >= enough {
                    return Ok(());
                }
            }
            let rate = self.rate();
            let Some(range) = self.stream.lease_chunk(self.place.worker.pace.next(rate)) else {
                return Ok(());
            };
            let listener = if fits { None } else { Some(self.listen(streams)?) };
            self.request(
                range,
                listener.map(|listener| DataPath::new(listener, streams, self.session.protection.clone())),
            )?;
        }
        Ok(())
    }

    /// Listens where the control connection ends, with the buffer that the path needs.
    fn listen(&mut self, streams: usize) -> Result<DataListener, FtpError> {
        self.place.worker.pace.restart();
        let control = &self.session.control;
        let settings = self.place.door.settings();
        let needed = || recv_buffer::larger_than_kernels(control.rtt()?, streams);
        let recv_buffer = settings.recv_buffer.or_else(needed);
        DataListener::open(control.local, control.peer, SocketSettings { recv_buffer, ..settings })
    }

    /// Requests a chunk and a look at the file behind it, over a new data path where there is one.
    fn request(&mut self, range: ByteRange, data: Option<DataPath>) -> Result<(), FtpError> {
        let path = &self.place.door.address.path;
        let mut commands = Vec::new();
        if self.session.mode != Mode::Extended {
            commands.push(Command::ModeExtended);
        }
        commands.extend(data.as_ref().map(DataPath::commands).into_iter().flatten());
        self.due.extend(commands.iter().map(|command| Due::Setup(command.verb())));
        let number = self.next_number;
        commands.push(Command::EretPartial(range, path));
        commands.extend(self.session.look.commands(path));
        self.due.push_back(Due::Transfer(number));
        self.due.extend(std::iter::repeat_n(Due::Look(number), self.session.look.replies()));
        if let Some(data) = data {
            // The connections of the path before are closed by the server as well.
            self.intakes.clear();
            self.session.data = Some(data);
        }
        self.session.mode = Mode::Extended;
        self.next_number += 1;
        let asked = ByteRange::new(0, range.len().get());
        let ledger = TransferLedger::new(asked);
        let requested = Instant::now();
        self.transfers.push_back(Transfer {
            number,
            range,
            ledger,
            requested,
            replied: false,
            proved: false,
        });
        self.session.control.send(&commands, self.place.door.at(), self.stream.stop())
    }

    /// Waits for something to arrive, a tick at most, and takes it.
    fn serve(&mut self) -> Result<(), Failure> {
        self.assign_turns();
        let ready = self.wait(self.place.door.config.timeouts.tick);
        if ready.control {
            let at = self.place.door.at();
            let mut reply = self.session.control.poll_reply(at)?;
            while let Some(one) = reply {
                self.take_reply(one)?;
                reply = self.session.control.buffered_reply(self.place.door.at())?;
            }
        }
        // From the last to the first, as one that is closed is replaced by the last.
        for index in ready.channels.into_iter().rev() {
            self.serve_channel(index)?;
        }
        if ready.listener {
            self.accept()?;
        }
        Ok(())
    }

    /// Waits for what is readable, a tick at most.
    fn wait(&mut self, tick: Duration) -> Ready {
        // poll(2) does not see what has been received already.
        let control_buffered = self.session.control.has_decrypted();
        let channels = self.session.data.as_mut().map_or(&mut [][..], |data| &mut data.channels);
        let buffered: Vec<bool> = channels.iter_mut().map(Channel::has_buffered).collect();
        let is_waiting = control_buffered || buffered.contains(&true);
        let data = self.session.data.as_ref();
        let flags = PollFlags::IN | PollFlags::RDHUP;
        let mut fds = vec![PollFd::new(self.session.control.transport().socket(), flags)];
        fds.extend(data.map(|data| PollFd::new(data.listener.socket(), PollFlags::IN)));
        let channels = data.map_or(&[][..], |data| &data.channels);
        // One whose transfer is not known yet is not waited for; it stays in the list, as the indices are the channels'.
        let flags_of = |channel: &Channel| if channel.turn.is_some() { flags } else { PollFlags::empty() };
        fds.extend(
            channels.iter().map(|channel| PollFd::new(channel.transport().socket(), flags_of(channel))),
        );
        let tick = if is_waiting { Duration::ZERO } else { tick };
        let timeout = Timespec::try_from(tick).ok();
        // An interrupted poll is a short one.
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return Ready::default();
        }
        let mut readable = fds.iter().map(|fd| !fd.revents().is_empty());
        let control = readable.next().unwrap_or(false) || control_buffered;
        let listener = data.is_some() && readable.next().unwrap_or(false);
        let readable = readable.zip(buffered).map(|(readable, buffered)| readable || buffered);
        let is_ready =
            |(index, ready): (usize, bool)| (ready && channels[index].turn.is_some()).then_some(index);
        Ready { control, listener, channels: readable.enumerate().filter_map(is_ready).collect() }
    }

    /// Accepts what the server has opened.
    fn accept(&mut self) -> Result<(), Failure> {
        let Some(data) = &mut self.session.data else { return Ok(()) };
        if data.accept(self.place.door.at())? > 0 {
            self.take_in_channels();
            self.mark = (Instant::now(), 0);
        }
        Ok(())
    }

    /// Finds out which transfer new connections belong to: the first one that is not at its end, as long as it lacks connections.
    ///
    /// A server that opens connections anew for each transfer may have begun the next one, while the data of this one still lies in
    /// the sockets.
    fn assign_turns(&mut self) {
        let Some(data) = &mut self.session.data else { return };
        let Some(open) = self.transfers.iter().find(|transfer| !transfer.ledger.all_ended()) else { return };
        let turn = Some(open.number);
        let mut sending = data.channels.iter().filter(|channel| channel.turn == turn).count();
        let is_stuck = !open.replied && self.last_data.elapsed() >= STUCK;
        let ended = usize::try_from(open.ledger.ended()).unwrap_or(usize::MAX);
        let asked = data.parallelism;
        for channel in data.channels.iter_mut().filter(|channel| channel.turn.is_none()) {
            let is_lacking = !open.replied && sending.saturating_add(ended) < asked;
            if sending == 0 || is_stuck || is_lacking {
                channel.turn = turn;
                sending += 1;
            }
        }
    }

    /// Begins to measure connections that have no intake yet.
    fn take_in_channels(&mut self) {
        let Some(data) = &self.session.data else { return };
        for channel in &data.channels[self.intakes.len()..] {
            let numbers = &mut self.place.worker.numbers;
            let index = self.intakes.len();
            // The first connection has the number of the stream.
            let known = if index == 0 { Some(self.stream.id()) } else { numbers.get(index).copied() };
            let (mut intake, number) = self.stream.new_intake(known);
            if index >= numbers.len() {
                numbers.push(number);
            }
            self.stream.connected_over(&mut intake, channel.transport().socket(), channel.peer);
            self.intakes.push(intake);
        }
    }

    fn take_reply(&mut self, reply: Reply) -> Result<(), FtpError> {
        let Some(&due) = self.due.front() else {
            return Err(FtpError::Unrequested { at: self.at(), what: format!("the reply {reply}") });
        };
        // 150 and markers. Those do not count as progress: only bytes do.
        if reply.is_preliminary() {
            return Ok(());
        }
        self.due.pop_front();
        self.mark = (Instant::now(), 0);
        match due {
            // A server without parallel connections opens one.
            Due::Setup("OPTS") => Ok(()),
            Due::Setup(verb) if !reply.is_positive() => Err(FtpError::Refused { at: self.at(), verb, reply }),
            Due::Setup(_) => Ok(()),
            Due::Transfer(number) => {
                if !reply.is_positive() {
                    return Err(FtpError::Refused { at: self.at(), verb: "ERET", reply });
                }
                self.transfer_mut(number).map_or(Ok(()), |transfer| {
                    transfer.replied = true;
                    Ok(())
                })
            }
            Due::Look(number) => {
                self.look.push(reply);
                if self.look.len() < self.session.look.replies() {
                    return Ok(());
                }
                self.take_look(number)
            }
        }
    }

    /// Compares the file after a chunk with what was described.
    fn take_look(&mut self, number: u64) -> Result<(), FtpError> {
        let replies = std::mem::take(&mut self.look);
        let now = self.session.look.read(&replies, self.place.door.at())?;
        compare(&self.place.described.state, &now, self.place.door.at())?;
        if let Some(transfer) = self.transfer_mut(number) {
            transfer.proved = true;
            let range = transfer.range;
            self.place.worker.unproved.prove(range);
        }
        Ok(())
    }

    fn transfer_mut(&mut self, number: u64) -> Option<&mut Transfer> {
        self.transfers.iter_mut().find(|transfer| transfer.number == number)
    }

    /// Receives from one connection.
    fn serve_channel(&mut self, index: usize) -> Result<(), Failure> {
        for _ in 0..CALLS_IN_TURN {
            let Some(channel) = self.session.data.as_mut().and_then(|data| data.channels.get_mut(index))
            else {
                return Ok(());
            };
            let received = if channel.payload().is_empty() {
                match channel.receive_header() {
                    Ok(Ok(ChannelEvent::Header(header))) => self.take_header(index, header).map(|()| true),
                    Ok(Ok(ChannelEvent::Idle)) => Ok(false),
                    Ok(Ok(ChannelEvent::Closed { between })) => self.closed(index, between).map(|()| false),
                    Ok(Err(source)) => Err(FtpError::Block { at: self.at(), source }.into()),
                    Err(source) => Err(FtpError::Data { at: self.at(), source }.into()),
                }
            } else {
                self.receive(index)
            };
            match received {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // The server may say why.
                Err(Failure::Ftp(error @ (FtpError::Data { .. } | FtpError::ClosedEarly { .. }))) => {
                    self.drop_channel(index);
                    self.broken.get_or_insert((error, Instant::now()));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take_header(&mut self, index: usize, header: BlockHeader) -> Result<(), Failure> {
        let Some(data) = &self.session.data else { return Ok(()) };
        let (number, turn) = (data.channels[index].number, data.channels[index].turn);
        let at = self.at();
        let Some(transfer) = turn.and_then(|turn| self.transfer_mut(turn)) else {
            return Err(FtpError::Unrequested { at, what: "a block of data".into() }.into());
        };
        transfer.ledger.announce(number, header).map_err(|source| FtpError::Ledger { at, source })?;
        if header.payload().is_none() {
            self.end_block(index);
        }
        Ok(())
    }

    /// Receives payload into a segment; returns whether there may be more.
    fn receive(&mut self, index: usize) -> Result<bool, Failure> {
        let rate = self.rate();
        let at = self.at();
        let Some(data) = &mut self.session.data else { return Ok(false) };
        let (channel, intake) = (&mut data.channels[index], &mut self.intakes[index]);
        let Some(transfer) = self.transfers.iter_mut().find(|transfer| Some(transfer.number) == channel.turn)
        else {
            return Err(FtpError::Unrequested { at, what: "a block of data".into() }.into());
        };
        let (block, base) = (channel.payload(), transfer.range.start());
        let place = ByteRange::new(base + block.start(), base + block.end());
        let received = match self.stream.leased_at(place.start()) {
            Some(leased) => {
                let part = ByteRange::new(place.start(), place.end().min(leased.end()));
                let Some(buffer) = intake.try_buffer(part, rate)? else {
                    // Other connections hold what is free; the time was the disk's.
                    self.intakes.iter_mut().for_each(Intake::flush);
                    self.stream.keep_alive();
                    self.mark = (Instant::now(), 0);
                    return Ok(false);
                };
                channel.receive_payload(buffer)
            }
            None => {
                let mut scratch = [0; DISCARD];
                let room = DISCARD.min(block.len().as_usize());
                channel.receive_payload(&mut scratch[..room])
            }
        };
        let n = match received {
            Ok(Received::Data(n)) => n as u64,
            Ok(Received::Idle) => return Ok(false),
            Ok(Received::End { .. }) => {
                let got = transfer.ledger.received();
                return Err(FtpError::ClosedEarly { at, got }.into());
            }
            Err(source) => return Err(FtpError::Data { at, source }.into()),
        };
        let arrived = ByteRange::with_len(place.start(), Bytes::new(n));
        transfer.ledger.receive(ByteRange::with_len(block.start(), Bytes::new(n)));
        self.mark.1 += n;
        self.last_data = Instant::now();
        let own = self.stream.delivered_over(intake, arrived, rate, channel.transport().socket());
        if own > Bytes::ZERO && !transfer.proved {
            self.place.worker.unproved.deliver(ByteRange::with_len(arrived.start(), own));
        }
        if channel.payload().is_empty() {
            self.end_block(index);
        }
        Ok(true)
    }

    /// Ends a block whose payload has arrived.
    fn end_block(&mut self, index: usize) {
        self.stream.drop_received();
        let Some(data) = &mut self.session.data else { return };
        let channel = &mut data.channels[index];
        let ended = channel.end_block();
        if ended {
            self.intakes[index].flush();
        }
        if ended && channel.closes {
            self.drop_channel(index);
        }
    }

    /// Takes note of a connection that the server has closed: between two transfers it may.
    fn closed(&mut self, index: usize, between: bool) -> Result<(), Failure> {
        let at = self.at();
        let Some(data) = &self.session.data else { return Ok(()) };
        let channel = &data.channels[index];
        let transfer = self.transfers.iter().find(|transfer| Some(transfer.number) == channel.turn);
        let got = transfer.map_or(Bytes::ZERO, |transfer| transfer.ledger.received());
        if !between || !channel.is_between_transfers() {
            return Err(FtpError::ClosedEarly { at, got }.into());
        }
        self.drop_channel(index);
        Ok(())
    }

    fn drop_channel(&mut self, index: usize) {
        if let Some(data) = &mut self.session.data {
            data.channels.swap_remove(index);
            self.intakes.swap_remove(index);
        }
    }

    /// Removes transfers that are complete and proved.
    fn retire(&mut self) -> Result<(), FtpError> {
        while let Some(front) = self.transfers.front() {
            let number = front.number;
            let channels = self.session.data.as_ref().map_or(&[][..], |data| &data.channels);
            let is_coming =
                channels.iter().any(|channel| channel.turn == Some(number) && channel.is_within_block());
            if !front.replied || !front.proved || !front.ledger.all_ended() || is_coming {
                return Ok(());
            }
            // Proved: it is not that the file became shorter.
            front.ledger.finish().map_err(|source| FtpError::Ledger { at: self.at(), source })?;
            self.transfers.pop_front();
        }
        Ok(())
    }

    /// Fails where the transfer is stopped, all of it was taken over, or nothing has come for too long.
    fn check_progress(&mut self) -> Result<(), Failure> {
        if self.stream.stop().is_cancelled() {
            return Err(SourceError::interrupted().into());
        }
        if let Some((_, since)) = &self.broken
            && since.elapsed() >= REPORT_PATIENCE
            && let Some((error, _)) = self.broken.take()
        {
            return Err(error.into());
        }
        self.intakes.iter_mut().for_each(Intake::flush_if_slow);
        let shown = self.place.worker.source.shown();
        let is_missing = |transfer: &Transfer| transfer.ledger.received() < transfer.range.len();
        // Releases what a draining stream would take long for.
        if self.stream.front().is_none() && self.transfers.iter().any(is_missing) {
            return Err(SourceError::stolen(shown).into());
        }
        let reached = self.session.data.as_ref().is_none_or(DataPath::is_reached);
        if let Some(first) = self.transfers.front().filter(|_| !reached)
            && first.requested.elapsed() >= CONNECT_PATIENCE
        {
            let local =
                self.session.data.as_ref().map_or(self.session.control.local, |data| data.listener.address);
            return Err(FtpError::NotConnected { at: self.at(), local, waited: CONNECT_PATIENCE }.into());
        }
        let (since, bytes) = self.mark;
        let stall = self.stream.stall_timeout();
        if since.elapsed() >= stall {
            if bytes < LEAST_DELIVERY.get() {
                return Err(self.stalled(stall));
            }
            self.mark = (Instant::now(), 0);
        }
        Ok(())
    }

    /// Says what did not come.
    fn stalled(&self, stall: Duration) -> Failure {
        let at = self.at();
        let Some(first) = self.transfers.front().filter(|first| !is_missing(first)) else {
            let shown = self.place.worker.source.shown();
            return SourceError::stalled(shown, LEAST_DELIVERY, stall).into();
        };
        match first.ledger.channels() {
            Some(announced) if !first.ledger.all_ended() => {
                let source = LedgerError::Channels { announced, other: first.ledger.ended() };
                FtpError::Ledger { at, source }.into()
            }
            _ => FtpError::Timeout { at, step: "the transfer", waited: stall }.into(),
        }
    }
}

fn is_missing(transfer: &Transfer) -> bool {
    transfer.ledger.received() < transfer.range.len()
}

/// What can be read without waiting.
#[derive(Default)]
struct Ready {
    control: bool,
    listener: bool,
    /// Indices of channels, ascending.
    channels: Vec<usize>,
}

fn sum(rates: impl Iterator<Item = Rate>) -> Rate {
    Rate::bits_per_sec(rates.fold(0, |sum, rate| sum.saturating_add(rate.as_bits_per_sec())))
}
