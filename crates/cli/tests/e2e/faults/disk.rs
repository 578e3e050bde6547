//! A separate disk: an ext4 image in a private mount namespace that fills up, hangs, and loses
//! power.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::statvfs;

use crate::faults::fault::{DiskFault, DiskFaultKind};
use crate::support::skip;

/// A mounted image of 64 MiB; dropping it ends its mount namespace.
pub(crate) struct Disk {
    holder: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    _turn: MutexGuard<'static, ()>,
}

/// One for each mounted image: loop devices are scarce.
static TURNS: [Mutex<()>; 3] = [const { Mutex::new(()) }; 3];
static NEXT_TURN: AtomicUsize = AtomicUsize::new(0);

/// Executes each line of its input, and prints the result.
const HOLDER: &str = r#"while read -r line; do eval "$line" && echo done || echo failed; done"#;

impl Disk {
    /// Creates and mounts an image in `dir`; fails with the reason why this machine cannot.
    pub(crate) fn mount(dir: &Path) -> Result<Self, &'static str> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can mount a file system");
        }
        let turn = TURNS[NEXT_TURN.fetch_add(1, Ordering::SeqCst) % TURNS.len()].lock();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", HOLDER]).current_dir(dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().map_err(|_| "there is no unshare")?;
        let (commands, answers) =
            (holder.stdin.take().unwrap(), BufReader::new(holder.stdout.take().unwrap()));
        let mut disk = Self { holder, commands, answers, _turn: turn };
        let make = "command -v perl >/dev/null && command -v fsfreeze >/dev/null && mkdir disk && truncate -s 64M image && mkfs.ext4 -q image";
        if disk.run(make) && disk.run(MOUNT) {
            Ok(disk)
        } else {
            Err("this machine mounts no image of a disk, or lacks perl or fsfreeze")
        }
    }

    /// Returns the mounted directory's path outside the namespace.
    pub(crate) fn path(&self) -> PathBuf {
        Path::new("/proc").join(self.holder.id().to_string()).join("cwd/disk")
    }

    pub(crate) fn holder(&self) -> u32 {
        self.holder.id()
    }

    pub(crate) fn sync(&self) {
        rustix::fs::syncfs(File::open(self.path()).unwrap()).unwrap();
    }

    fn fill(&self, leave: u64) {
        let free = statvfs(self.path()).map_or(0, |fs| fs.f_bfree * fs.f_frsize);
        let Ok(file) = File::create(self.path().join("others")) else { return };
        // Root can also use the reserved blocks.
        let taken = free.saturating_sub(leave).max(1);
        let _ = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, taken);
    }

    fn freeze(&self, time: Duration) {
        let set = |how| {
            let _ = Command::new("fsfreeze").arg(how).arg(self.path()).stderr(Stdio::null()).status();
        };
        set("-f");
        thread::sleep(time);
        set("-u");
    }

    /// All operations fail from here on, and unsynced data is lost: EXT4_IOC_SHUTDOWN without a log
    /// flush.
    fn cut_power(&self) {
        let script = "open(my $f, '<', $ARGV[0]) or die $!; my $how = pack('L', 2); ioctl($f, 0x8004587d, $how) or die $!";
        let _ = Command::new("perl").args(["-e", script]).arg(self.path()).status();
    }

    /// Reverts `fault`, once the disk is unused.
    pub(crate) fn recover(&mut self, fault: Option<DiskFault>) {
        let _ = fs::remove_file(self.path().join("others"));
        if fault == Some(DiskFault::POWER_CUT_AFTER) {
            self.cut_power();
        }
        if fault.is_some_and(DiskFault::cuts_power) {
            assert!(self.run("umount disk"), "the image is in use");
            assert!(self.run(MOUNT), "the image cannot be mounted again");
        }
    }

    fn inject(&self, fault: DiskFault) {
        match fault.what {
            DiskFaultKind::Full(leave) => self.fill(leave),
            DiskFaultKind::Hang(millis) => self.freeze(Duration::from_millis(millis)),
            DiskFaultKind::Slow(millis) => {
                let until = Instant::now() + Duration::from_millis(millis);
                while Instant::now() < until {
                    self.freeze(Duration::from_millis(80));
                    thread::sleep(Duration::from_millis(15));
                }
            }
            DiskFaultKind::PowerCut | DiskFaultKind::PowerCutAfter => self.cut_power(),
        }
    }

    fn run(&mut self, line: &str) -> bool {
        let mut answer = String::new();
        writeln!(self.commands, "{line}").is_ok()
            && self.answers.read_line(&mut answer).is_ok()
            && answer == "done\n"
    }
}

const MOUNT: &str = "mount -o loop image disk";

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Runs `body`, and injects `fault` into `disk` at its moment. `body` calls its argument with the
/// bytes served so far; that returns whether the disk is being disturbed.
pub(crate) fn during<T>(
    disk: Option<&Disk>,
    fault: Option<DiskFault>,
    body: impl FnOnce(&mut dyn FnMut(u64) -> bool) -> T,
) -> T {
    let suffering = AtomicBool::new(false);
    let (mut left, is_disturbed) = (fault, &suffering);
    thread::scope(|scope| {
        body(&mut |moved| {
            if let (Some(fault), Some(disk)) = (left.filter(|fault| moved >= fault.at), disk) {
                left = None;
                is_disturbed.store(true, Ordering::SeqCst);
                scope.spawn(move || {
                    disk.inject(fault);
                    is_disturbed.store(false, Ordering::SeqCst);
                });
            }
            is_disturbed.load(Ordering::SeqCst)
        })
    })
}

#[test]
fn a_power_cut_loses_what_was_not_synced_and_keeps_what_was() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut disk = match Disk::mount(dir.path()) {
        Ok(disk) => disk,
        Err(why) => return skip(why),
    };
    fs::write(disk.path().join("synced"), "synced").unwrap();
    disk.sync();
    fs::write(disk.path().join("lost"), "lost").unwrap();
    disk.recover(Some(DiskFault::POWER_CUT_AFTER));
    assert_eq!(fs::read(disk.path().join("synced")).unwrap(), b"synced");
    assert!(!disk.path().join("lost").exists());
}
