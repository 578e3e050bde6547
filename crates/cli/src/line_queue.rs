//! Lines on their way to stdout or stderr, whose reader may be slow or may not read at all: no caller waits for it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Memory for frequent lines that wait; further ones are dropped. A slow reader is this far behind: some 2,000 lines.
const WAITING: usize = 1 << 20;
/// A write that waits for its reader is of this size at most, so that a slow reader is seen to read (PIPE_BUF).
const PIECE: usize = 4096;
/// How long the end waits for a reader that has read nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// A queue of lines, and the thread that writes them.
#[derive(Clone)]
pub(crate) struct LineQueue {
    shared: Arc<Shared>,
}

/// Where lines go.
pub(crate) trait Output: Send {
    /// Writes lines; calls `wrote` each time that a reader has taken some.
    ///
    /// # Errors
    /// Fails where no further line can be written.
    fn write(&mut self, lines: &[u8], wrote: &dyn Fn()) -> io::Result<()>;

    /// Draws what is shown besides lines; returns whether that changes soon.
    fn draw(&mut self) -> bool {
        false
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// For the thread: there is something to do.
    work: Condvar,
    /// For the end: something was written, or all is done.
    wrote: Condvar,
}

#[derive(Default)]
struct State {
    lines: VecDeque<Line>,
    /// Bytes of frequent lines among them.
    frequent: usize,
    dropped: u64,
    /// Counts how often a reader took something.
    writes: u64,
    /// Counts what the thread was asked to do.
    asked: u64,
    /// As much of that is done.
    done: u64,
    /// Writing has failed, and every line is thrown away.
    is_broken: bool,
}

struct Line {
    text: String,
    is_frequent: bool,
}

impl LineQueue {
    /// Starts the thread `name`; `redraw` is how often it draws.
    ///
    /// # Errors
    /// Fails where there is no thread to be had.
    pub(crate) fn start(name: &str, output: impl Output + 'static, redraw: Duration) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        let run = move || theirs.run(output, redraw);
        std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { shared })
    }

    /// Adds a line that must not be lost.
    pub(crate) fn push(&self, text: String) {
        self.add(Line { text, is_frequent: false });
    }

    /// Adds a line of which there are many; drops and counts it where too many wait.
    pub(crate) fn push_frequent(&self, text: String) {
        self.add(Line { text, is_frequent: true });
    }

    fn add(&self, line: Line) {
        let mut state = self.shared.lock();
        if state.is_broken {
            return;
        }
        if line.is_frequent {
            if state.frequent + line.text.len() > WAITING {
                state.dropped += 1;
                return;
            }
            state.frequent += line.text.len();
        }
        state.lines.push_back(line);
        self.shared.ask(&mut state);
    }

    /// Returns how many lines were dropped since this was last asked.
    pub(crate) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.shared.lock().dropped)
    }

    /// Has the thread draw at once.
    pub(crate) fn redraw(&self) {
        self.shared.ask(&mut self.shared.lock());
    }

    /// Waits until everything is written and drawn, or for about a second nothing was read.
    pub(crate) fn drain(&self) {
        let mut state = self.shared.lock();
        let asked = self.shared.ask(&mut state);
        while state.done < asked {
            let before = state.writes;
            let waits = |state: &mut State| state.done < asked && state.writes == before;
            let waited = self.shared.wrote.wait_timeout_while(state, PATIENCE, waits);
            let (after, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = after;
            if timeout.timed_out() {
                return;
            }
        }
    }
}

impl Shared {
    /// Locks; no code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread; returns the number of what it was asked.
    fn ask(&self, state: &mut State) -> u64 {
        state.asked += 1;
        self.work.notify_one();
        state.asked
    }

    /// Writes and draws until the process ends.
    fn run(&self, mut output: impl Output, redraw: Duration) {
        let wrote = || {
            self.lock().writes += 1;
            self.wrote.notify_all();
        };
        loop {
            let asked = self.lock().asked;
            let is_animated = output.draw();
            let lines = self.take();
            if !lines.is_empty() {
                if output.write(lines.as_bytes(), &wrote).is_err() {
                    let mut state = self.lock();
                    state.is_broken = true;
                    state.lines.clear();
                }
                continue;
            }
            self.rest(asked, is_animated.then_some(redraw));
        }
    }

    /// Takes lines off the queue: few, so that a reader's progress is seen.
    fn take(&self) -> String {
        let mut state = self.lock();
        let mut taken = String::new();
        while taken.len() < PIECE
            && let Some(line) = state.lines.pop_front()
        {
            if line.is_frequent {
                state.frequent -= line.text.len();
            }
            taken.push_str(&line.text);
        }
        taken
    }

    /// Waits for work, where something is animated no longer than until it is to be drawn again.
    fn rest(&self, asked: u64, redraw: Option<Duration>) {
        let mut state = self.lock();
        // Asked for since this round began.
        if state.asked != asked {
            return;
        }
        state.done = asked;
        self.wrote.notify_all();
        match redraw {
            Some(redraw) => drop(self.work.wait_timeout(state, redraw)),
            None => drop(self.work.wait(state)),
        }
    }
}

/// Writes to a descriptor of the process.
///
/// A lock of [`std::io`] is not held meanwhile: the end would wait for it.
pub(crate) fn write_all(to: impl AsFd, mut text: &[u8], wrote: &dyn Fn()) -> io::Result<()> {
    while !text.is_empty() {
        let piece = &text[..text.len().min(PIECE)];
        match rustix::io::write(&to, piece) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                text = &text[written..];
                wrote();
            }
            Err(Errno::INTR) => {}
            // Set so by another process that shares it.
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
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::Instant;

    use super::*;

    /// Writes only as far as a test permits it.
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

    #[test]
    fn a_reader_that_reads_nothing_is_waited_for_a_second() {
        let (queue, permit, _lines) = slow();
        queue.push("first\n".into());
        let begun = Instant::now();
        queue.drain();
        assert!((PATIENCE..PATIENCE * 5).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        drop(permit);
    }

    #[test]
    fn a_slow_reader_gets_everything() {
        let (queue, permit, lines) = slow();
        (0..6).for_each(|line| queue.push(format!("{line}\n")));
        let reader = std::thread::spawn(move || {
            for _ in 0..6 {
                std::thread::sleep(PATIENCE / 4);
                permit.send(()).unwrap();
            }
        });
        queue.drain();
        assert_eq!(lines.try_iter().collect::<Vec<_>>(), ["0", "1", "2", "3", "4", "5"]);
        reader.join().unwrap();
    }

    #[test]
    fn frequent_lines_are_dropped_and_counted_and_no_other() {
        let (queue, permit, lines) = slow();
        let line = "x".repeat(WAITING / 64 - 1) + "\n";
        // The thread may already have taken the first.
        (0..80).for_each(|_| queue.push_frequent(line.clone()));
        (0..3).for_each(|_| queue.push("kept\n".into()));
        let dropped = queue.take_dropped();
        assert!((15..=16).contains(&dropped), "{dropped}");
        assert_eq!(queue.take_dropped(), 0);
        (0..83).for_each(|_| permit.send(()).unwrap());
        queue.drain();
        let lines: Vec<_> = lines.try_iter().collect();
        assert_eq!((lines.len() as u64, lines[lines.len() - 3].as_str()), (83 - dropped, "kept"));
    }

    #[test]
    fn a_broken_output_takes_no_time() {
        let (queue, permit, lines) = slow();
        drop(permit);
        (0..1000).for_each(|_| queue.push("line\n".into()));
        let begun = Instant::now();
        queue.drain();
        queue.push("after\n".into());
        queue.drain();
        assert!(begun.elapsed() < PATIENCE && lines.try_iter().count() == 0);
    }
}
