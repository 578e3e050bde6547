//! A queue of lines for stdout or stderr: callers never block on a slow or stalled reader.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Maximum bytes of queued frequent lines; further ones are dropped. About 2,000 lines.
const MAX_FREQUENT_BYTES: usize = 1 << 20;
/// Maximum bytes of one write (PIPE_BUF), so that progress of a slow reader is visible.
const MAX_WRITE_BYTES: usize = 4096;
/// Maximum wait at the end without progress of the reader.
const STALL_LIMIT: Duration = Duration::from_secs(1);

/// A queue of lines, and its writer thread.
#[derive(Clone)]
pub(crate) struct LineQueue {
    shared: Arc<QueueShared>,
}

/// The destination of the lines.
pub(crate) trait Output: Send {
    /// Writes lines; calls `wrote` whenever the reader has accepted some.
    ///
    /// # Errors
    /// Fails if no further line can be written.
    fn write(&mut self, lines: &[u8], wrote: &dyn Fn()) -> io::Result<()>;

    /// Draws content below the lines; returns whether to draw again soon.
    fn draw(&mut self) -> bool {
        false
    }
}

#[derive(Default)]
struct QueueShared {
    state: Mutex<QueueState>,
    /// Notifies the writer thread of work.
    work: Condvar,
    /// Notifies waiters that something was written, or that all work is done.
    wrote: Condvar,
}

#[derive(Default)]
struct QueueState {
    lines: VecDeque<QueuedLine>,
    /// Bytes of the queued frequent lines.
    frequent: usize,
    dropped: u64,
    /// Number of writes that the reader has accepted.
    writes: u64,
    /// Number of requests to the writer thread.
    asked: u64,
    /// Number of completed requests.
    done: u64,
    /// Writing has failed; all lines are discarded.
    is_broken: bool,
}

struct QueuedLine {
    text: String,
    is_frequent: bool,
}

impl LineQueue {
    /// Starts the writer thread with the given name; `redraw` is the interval between drawings.
    ///
    /// # Errors
    /// Fails if the thread cannot be created.
    pub(crate) fn start(name: &str, output: impl Output + 'static, redraw: Duration) -> io::Result<Self> {
        let shared = Arc::<QueueShared>::default();
        let theirs = Arc::clone(&shared);
        let run = move || theirs.run(output, redraw);
        std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { shared })
    }

    /// Queues a line that must not be dropped.
    pub(crate) fn push(&self, text: String) {
        self.add(QueuedLine { text, is_frequent: false });
    }

    /// Queues a frequent line; drops and counts it if the queue is full.
    pub(crate) fn push_frequent(&self, text: String) {
        self.add(QueuedLine { text, is_frequent: true });
    }

    fn add(&self, line: QueuedLine) {
        let mut state = self.shared.state.lock();
        if state.is_broken {
            return;
        }
        if line.is_frequent {
            if state.frequent + line.text.len() > MAX_FREQUENT_BYTES {
                state.dropped += 1;
                return;
            }
            state.frequent += line.text.len();
        }
        state.lines.push_back(line);
        self.shared.ask(&mut state);
    }

    /// Returns the number of lines dropped since the last call.
    pub(crate) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.shared.state.lock().dropped)
    }

    /// Requests a drawing at once.
    pub(crate) fn redraw(&self) {
        self.shared.ask(&mut self.shared.state.lock());
    }

    /// Waits until everything is written and drawn, or until nothing was read for about a second.
    pub(crate) fn drain(&self) {
        self.drain_within(STALL_LIMIT);
    }

    /// Returns whether everything is written and drawn: it waits no longer than `limit` without
    /// progress of the reader.
    fn drain_within(&self, limit: Duration) -> bool {
        let mut state = self.shared.state.lock();
        let asked = self.shared.ask(&mut state);
        while state.done < asked {
            let before = state.writes;
            let waits = |state: &mut QueueState| state.done < asked && state.writes == before;
            self.shared.wrote.wait_while_for(&mut state, waits, limit);
            // A write may have come with the end of the time.
            if waits(&mut state) {
                return false;
            }
        }
        true
    }
}

impl QueueShared {
    /// Wakes the writer thread; returns the number of the request.
    fn ask(&self, state: &mut QueueState) -> u64 {
        state.asked += 1;
        self.work.notify_one();
        state.asked
    }

    /// Writes and draws until the process ends.
    fn run(&self, mut output: impl Output, redraw: Duration) {
        let wrote = || {
            self.state.lock().writes += 1;
            self.wrote.notify_all();
        };
        loop {
            let asked = self.state.lock().asked;
            // Taken before the drawing: what a caller removed before it queued a line must not be
            // drawn below it.
            let lines = self.take();
            let is_animated = output.draw();
            if !lines.is_empty() {
                if output.write(lines.as_bytes(), &wrote).is_err() {
                    let mut state = self.state.lock();
                    state.is_broken = true;
                    state.lines.clear();
                }
                continue;
            }
            self.rest(asked, is_animated.then_some(redraw));
        }
    }

    /// Dequeues a few lines, so that a reader's progress is visible.
    fn take(&self) -> String {
        let mut state = self.state.lock();
        let mut taken = String::new();
        while taken.len() < MAX_WRITE_BYTES
            && let Some(line) = state.lines.pop_front()
        {
            if line.is_frequent {
                state.frequent -= line.text.len();
            }
            taken.push_str(&line.text);
        }
        taken
    }

    /// Waits for work, but no longer than until the next drawing.
    fn rest(&self, asked: u64, redraw: Option<Duration>) {
        let mut state = self.state.lock();
        // A request arrived since this round began.
        if state.asked != asked {
            return;
        }
        state.done = asked;
        self.wrote.notify_all();
        match redraw {
            Some(redraw) => {
                self.work.wait_for(&mut state, redraw);
            }
            None => self.work.wait(&mut state),
        }
    }
}

/// Writes to a file descriptor.
///
/// Holds no lock of [`std::io`]: the process's end would wait for it.
pub(crate) fn write_all(to: impl AsFd, mut text: &[u8], wrote: &dyn Fn()) -> io::Result<()> {
    while !text.is_empty() {
        let piece = &text[..text.len().min(MAX_WRITE_BYTES)];
        match rustix::io::write(&to, piece) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                text = &text[written..];
                wrote();
            }
            Err(Errno::INTR) => {}
            // Another process that shares the description has set O_NONBLOCK.
            Err(Errno::AGAIN) => {
                let writable = PollFd::new(&to, PollFlags::OUT);
                match poll(&mut [writable], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::Instant;

    use super::*;

    const HANG: Duration = Duration::from_secs(60);

    /// Writes only as far as the test permits.
    struct Slow {
        permits: Receiver<()>,
        written: Sender<String>,
    }

    impl Output for Slow {
        fn write(&mut self, lines: &[u8], wrote: &dyn Fn()) -> io::Result<()> {
            for line in String::from_utf8_lossy(lines).lines() {
                self.permits.recv().map_err(io::Error::other)?;
                // The test may have ended.
                let _ = self.written.send(line.to_owned());
                wrote();
            }
            Ok(())
        }
    }

    fn slow() -> (LineQueue, Sender<()>, Receiver<String>) {
        let (permit, permits) = mpsc::channel();
        let (written, lines) = mpsc::channel();
        let queue = LineQueue::start("test", Slow { permits, written }, Duration::ZERO).unwrap();
        (queue, permit, lines)
    }

    /// Draws a flag; a drawing ends once the test permits it.
    struct Flag {
        flag: Arc<AtomicBool>,
        drawn: bool,
        drawing: Sender<()>,
        permits: Receiver<()>,
        /// What was drawn when a line was written.
        below_line: Sender<bool>,
    }

    impl Output for Flag {
        fn write(&mut self, _: &[u8], _: &dyn Fn()) -> io::Result<()> {
            self.below_line.send(self.drawn).map_err(io::Error::other)
        }

        fn draw(&mut self) -> bool {
            self.drawn = self.flag.load(Ordering::Relaxed);
            // The test waits for the first drawing only, and then ends its permits.
            let _ = self.drawing.send(());
            let _ = self.permits.recv();
            false
        }
    }

    #[test]
    fn what_was_removed_before_a_line_is_not_drawn_below_it() {
        let flag = Arc::new(AtomicBool::new(true));
        let ((drawing, draws), (permit, permits)) = (mpsc::channel(), mpsc::channel());
        let (below_line, drawn_below) = mpsc::channel();
        let output = Flag { flag: Arc::clone(&flag), drawn: false, drawing, permits, below_line };
        let queue = LineQueue::start("test", output, Duration::ZERO).unwrap();
        draws.recv().unwrap();
        flag.store(false, Ordering::Relaxed);
        queue.push("line\n".into());
        drop(permit);
        assert_eq!(drawn_below.recv(), Ok(false));
    }

    #[test]
    fn slow_reader_receives_all_lines_and_a_stalled_one_is_not_waited_for() {
        let (queue, permit, lines) = slow();
        (0..6).for_each(|line| queue.push(format!("{line}\n")));
        let begun = Instant::now();
        assert!(!queue.drain_within(STALL_LIMIT / 10) && begun.elapsed() >= STALL_LIMIT / 10);
        let reader = std::thread::spawn(move || {
            for _ in 0..6 {
                std::thread::sleep(STALL_LIMIT / 3);
                permit.send(()).unwrap();
            }
        });
        // Less than all lines take.
        assert!(queue.drain_within(STALL_LIMIT * 3 / 2));
        assert_eq!(lines.try_iter().collect::<Vec<_>>(), ["0", "1", "2", "3", "4", "5"]);
        reader.join().unwrap();
    }

    #[test]
    fn only_frequent_lines_are_dropped_and_counted() {
        let (queue, permit, lines) = slow();
        let line = "x".repeat(MAX_FREQUENT_BYTES / 64 - 1) + "\n";
        // The thread may already have dequeued the first line.
        (0..80).for_each(|_| queue.push_frequent(line.clone()));
        (0..3).for_each(|_| queue.push("kept\n".into()));
        let dropped = queue.take_dropped();
        assert!((15..=16).contains(&dropped), "{dropped}");
        assert_eq!(queue.take_dropped(), 0);
        (0..83).for_each(|_| permit.send(()).unwrap());
        assert!(queue.drain_within(HANG));
        let lines: Vec<_> = lines.try_iter().collect();
        assert_eq!((lines.len() as u64, lines[lines.len() - 3].as_str()), (83 - dropped, "kept"));
    }

    #[test]
    fn broken_output_does_not_block() {
        let (queue, permit, lines) = slow();
        drop(permit);
        (0..1000).for_each(|_| queue.push("line\n".into()));
        assert!(queue.drain_within(HANG));
        queue.push("after\n".into());
        assert!(queue.drain_within(HANG) && lines.try_iter().count() == 0);
    }
}
