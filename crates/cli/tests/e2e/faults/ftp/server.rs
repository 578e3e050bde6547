//! The scripted FTP server of a schedule: dated builds, and faults of transfers.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::schedule::{Connections, FtpFault, FtpSchedule, FtpStep};
use crate::faults::peer::Progress;
use crate::faults::schedule::Build;
use crate::support::scripted::{FtpCommand, Scripted, Session};
use crate::support::scripted_data::{Data, Transfer, end};

/// Longer than the client's `--stall-timeout`.
const SILENCE: Duration = Duration::from_millis(4000);

pub(crate) struct FtpServer {
    script: Arc<FtpScript>,
    server: Scripted,
}

struct FtpScript {
    builds: Vec<Build>,
    features: String,
    restarts: bool,
    run: Mutex<RunState>,
    progress: Progress,
}

struct RunState {
    step: FtpStep,
    build: usize,
    transfers: u32,
}

impl FtpServer {
    pub(crate) fn start(schedule: &FtpSchedule) -> Self {
        let features = match (schedule.extended, schedule.restarts) {
            (true, _) => "PARALLEL,ERET,SIZE,MDTM,REST STREAM,EPRT,EPSV",
            (false, true) => "SIZE,MDTM,REST STREAM,EPSV",
            (false, false) => "SIZE,MDTM,EPSV",
        };
        let step = FtpStep::sound(0);
        let script = Arc::new(FtpScript {
            builds: schedule.builds.clone(),
            features: format!("211-Extensions\r\n {}\r\n211 End", features.replace(',', "\r\n ")),
            restarts: schedule.restarts,
            run: Mutex::new(RunState { step, build: 0, transfers: 0 }),
            progress: Progress::new(),
        });
        let shared = Arc::clone(&script);
        // The scripted server's own file is unused.
        let server = Scripted::new(Vec::new(), move |session, command| shared.play(session, command));
        Self { script, server }
    }

    pub(crate) fn begin(&self, step: &FtpStep) {
        let mut run = self.script.run.lock();
        (run.step, run.build, run.transfers) = (step.clone(), step.build, 0);
        self.script.progress.begin();
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.script.progress
    }
}

impl FtpScript {
    /// Answers a command; returns false to let the honest server answer.
    fn play(&self, session: &mut Session, command: &FtpCommand) -> bool {
        self.progress.count(0);
        let number = self.run.lock().build;
        match command.verb.as_str() {
            "FEAT" => session.reply(&self.features),
            "SIZE" => session.reply(&format!("213 {}", self.builds[number].len)),
            "MDTM" => session.reply(&format!("213 2020010203040{number}")),
            "MLST" => session.reply("500 unknown"),
            "REST" if !self.restarts => session.reply("502 not implemented"),
            "RETR" | "ERET" => self.transfer(session, command),
            _ => return false,
        }
        true
    }

    fn transfer(&self, session: &mut Session, command: &FtpCommand) {
        let (fault, build, connections) = {
            let mut run = self.run.lock();
            let number = run.transfers;
            run.transfers += 1;
            if let Some((at, to)) = run.step.change
                && number >= at
            {
                run.build = to;
            }
            let fault = run.step.faults.iter().find(|(at, _)| *at == number).map(|(_, fault)| *fault);
            (fault, run.build, run.step.connections)
        };
        let FtpCommand { verb, rest } = command;
        self.progress.note(&format!("#{} {verb} {rest}: build {build}, {fault:?}", session.number));
        let bytes = self.builds[build].bytes();
        let Some(transfer) = session.transfer_of(command, bytes.len() as u64) else {
            return session.reply("501 what?");
        };
        if let Some(FtpFault::Refused(code)) = fault {
            session.reply(&format!("{code} not now"));
            if code == 421 {
                session.close();
            }
            return;
        }
        session.reply("150 sending");
        if fault == Some(FtpFault::EarlySuccess) {
            session.reply("226 complete");
        }
        let wanted = if connections == Connections::Single { 1 } else { session.parallelism };
        let mut data = session.connections(if session.extended { wanted } else { 1 });
        if data.is_empty() {
            return session.reply("425 no data connection");
        }
        let sent = self.send(session, &transfer, bytes, &mut data, fault);
        if session.extended && connections == Connections::Kept && fault.is_none() {
            session.keep(data);
        } else {
            drop(data);
        }
        match (fault, sent) {
            (Some(FtpFault::EarlySuccess | FtpFault::Reset(_) | FtpFault::Lost(_)), _) => {}
            (Some(FtpFault::Silence), _) => thread::sleep(SILENCE),
            (Some(FtpFault::LateFailure), _) => session.reply("451 read error"),
            (_, true) => session.reply("226 complete"),
            (_, false) => session.reply("426 data connection closed"),
        }
    }

    /// Sends the data, with its fault; returns whether to report success.
    fn send(
        &self,
        session: &mut Session,
        transfer: &Transfer,
        bytes: &[u8],
        data: &mut Vec<Data>,
        fault: Option<FtpFault>,
    ) -> bool {
        let (blocks, connections, is_extended) = (transfer.blocks(), data.len() as u64, session.extended);
        let mut bytes = Cow::Borrowed(bytes);
        if matches!(fault, Some(FtpFault::WrongThenTwice | FtpFault::WrongThenOutside)) {
            bytes.to_mut().iter_mut().for_each(|byte| *byte = !*byte);
        }
        let bytes = &*bytes;
        let counted = |n: u64| {
            let block = transfer.block(n);
            self.progress.count(block.end - block.start);
            true
        };
        let send_blocks = |data: &mut Vec<Data>, wanted: &(dyn Fn(u64) -> bool + Sync)| {
            if is_extended {
                return transfer.send_blocks(bytes, data, |n| wanted(n) && counted(n));
            }
            (0..blocks).filter(|n| wanted(*n) && counted(*n)).all(|n| {
                let block = transfer.block(n);
                data[0].raw(&bytes[block.start as usize..block.end as usize])
            })
        };
        let until = match fault {
            Some(FtpFault::Drop(at) | FtpFault::Reset(at) | FtpFault::Lost(at) | FtpFault::Stall(at, _)) => {
                at * blocks / 1000
            }
            _ => blocks,
        };
        let leaves_out = |n: u64| fault == Some(FtpFault::Missing) && n % 5 == 2 % blocks.min(5);
        if !send_blocks(data, &|n| n < until && !leaves_out(n)) {
            return false;
        }
        match fault {
            Some(FtpFault::Stall(_, millis)) => {
                thread::sleep(Duration::from_millis(millis));
                if !send_blocks(data, &|n| n >= until) {
                    return false;
                }
            }
            // One connection only: the others remain open until the server has reported it.
            Some(FtpFault::Drop(_)) => {
                data.pop();
                return false;
            }
            Some(FtpFault::Reset(_)) => {
                data.drain(..).for_each(Data::reset);
                return false;
            }
            Some(FtpFault::Lost(_)) => {
                session.close();
                data.clear();
                return false;
            }
            Some(FtpFault::WrongThenTwice) if blocks > 0 => {
                thread::sleep(Duration::from_millis(400));
                data[0].block(bytes, transfer.block(0), transfer.base);
            }
            Some(FtpFault::WrongThenOutside) => {
                thread::sleep(Duration::from_millis(400));
                data[0].header(0, 5, transfer.range.end - transfer.base);
                data[0].raw(b"wrong");
            }
            Some(FtpFault::BadHeader(descriptor)) => {
                data[0].header(descriptor, 5, 0);
            }
            Some(FtpFault::Closes) => {
                for (n, channel) in data.iter_mut().enumerate() {
                    let (descriptor, offset) = if n == 0 { (76, connections) } else { (12, 0) };
                    channel.header(descriptor, 0, offset);
                }
                return true;
            }
            _ => {}
        }
        if !is_extended {
            return true;
        }
        let announced = match fault {
            Some(FtpFault::WrongCount(by)) => connections.saturating_add_signed(by),
            _ => connections,
        };
        let ended = end(data, announced);
        if fault == Some(FtpFault::AfterEnd) && blocks > 0 {
            data[0].block(bytes, transfer.block(0), transfer.base);
        }
        ended
    }
}
