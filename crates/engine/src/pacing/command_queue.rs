//! The commands to the pacing thread. A channel's receiver spins before it sleeps, at thousands of
//! deadlines a second half a core.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::PacingCommand;

#[derive(Default)]
struct CommandQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    commands: VecDeque<PacingCommand>,
    senders: usize,
}

/// The sending half, one per handle.
pub(super) struct CommandSender(Arc<CommandQueue>);

/// The receiving half.
pub(super) struct CommandReceiver(Arc<CommandQueue>);

pub(super) enum Received {
    Command(PacingCommand),
    /// The deadline has passed.
    TimedOut,
    /// Every sender is gone.
    Closed,
}

pub(super) fn new() -> (CommandSender, CommandReceiver) {
    let queue = Arc::new(CommandQueue::default());
    queue.state.lock().senders = 1;
    (CommandSender(Arc::clone(&queue)), CommandReceiver(queue))
}

impl CommandSender {
    pub(super) fn send(&self, command: PacingCommand) {
        self.0.state.lock().commands.push_back(command);
        self.0.changed.notify_one();
    }
}

impl Clone for CommandSender {
    fn clone(&self) -> Self {
        self.0.state.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for CommandSender {
    fn drop(&mut self) {
        self.0.state.lock().senders -= 1;
        self.0.changed.notify_one();
    }
}

impl std::fmt::Debug for CommandSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CommandSender")
    }
}

impl CommandReceiver {
    /// Waits for a command, until `deadline` if there is one.
    pub(super) fn receive(&self, deadline: Option<Instant>) -> Received {
        let mut state = self.0.state.lock();
        loop {
            if let Some(command) = state.commands.pop_front() {
                return Received::Command(command);
            }
            if state.senders == 0 {
                return Received::Closed;
            }
            match deadline {
                None => self.0.changed.wait(&mut state),
                Some(deadline) if self.0.changed.wait_until(&mut state, deadline).timed_out() => {
                    return Received::TimedOut;
                }
                Some(_) => {}
            }
        }
    }
}
