//! Processes: a PID namespace tied to this process, and resource usage of a child.

use std::convert::Infallible;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::ForkResult;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, WaitOptions};
use rustix::thread::UnshareFlags;

/// A PID namespace, held by an init process; all its processes are killed when this is dropped.
///
/// They are also killed when this process ends in any way, including SIGKILL: the init reads from a
/// pipe whose other end only this process holds, and the kernel kills a namespace with its init.
#[derive(Debug)]
pub struct PidNamespace {
    init: Pid,
    /// Never written to; closing it ends the init.
    _alive: OwnedFd,
}

impl PidNamespace {
    /// Creates a PID namespace for the calling thread's future children.
    ///
    /// The thread itself stays outside, and cannot start threads from now on. The namespace's own
    /// `/proc` is mounted in the thread's mount namespace, which must be private, if the kernel
    /// permits it; in containers it may not, and the old `/proc` remains.
    ///
    /// # Errors
    /// The kernel's error without CAP_SYS_ADMIN, or at the limit of processes or namespaces.
    pub fn for_children_of_this_thread() -> io::Result<Self> {
        let (ended, alive) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: NEWPID affects only processes that this thread starts from now on.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }?;
        let (ready, not_ready) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let ended = ended.as_raw_fd();
        // SAFETY: `hold_namespace` makes system calls only, and does not return.
        let init = unsafe { fork_syscalls_only(|| hold_namespace(ended)) }?;
        let namespace = Self { init, _alive: alive };
        // The init closes its copy after mounting /proc.
        drop(not_ready);
        rustix::io::retry_on_intr(|| rustix::io::read(&ready, &mut [0]))?;
        Ok(namespace)
    }
}

impl Drop for PidNamespace {
    fn drop(&mut self) {
        // Reaping waits until every process of the namespace has ended.
        let _ = rustix::process::kill_process(self.init, Signal::KILL);
        while let Err(rustix::io::Errno::INTR) =
            rustix::process::waitpid(Some(self.init), WaitOptions::empty())
        {}
    }
}

/// Runs the init of a PID namespace: adopts orphans, and ends when `ended` reads end of file.
///
/// Runs in a forked child of a process that may have threads: system calls only.
fn hold_namespace(ended: i32) -> ! {
    // SAFETY: all of these are async-signal-safe; the descriptors belong to this process alone.
    unsafe {
        // Detaches from the terminal's signals; with SIGCHLD ignored, the kernel reaps orphans.
        libc::setsid();
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::prctl(libc::PR_SET_NAME, c"lab-init".as_ptr());
        libc::chdir(c"/".as_ptr());
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let proc = c"proc".as_ptr();
        libc::mount(proc, c"/proc".as_ptr(), proc, flags, std::ptr::null());
        // Closes all inherited descriptors, including the pipe's other end.
        libc::dup2(ended, 0);
        close_all_but_stdin();
        let mut byte = 0_u8;
        while libc::read(0, (&raw mut byte).cast(), 1) != 0 && *libc::__errno_location() == libc::EINTR {}
        libc::_exit(0)
    }
}

/// Closes every descriptor but 0, by async-signal-safe calls only.
///
/// # Safety
/// The calling process must own all of its descriptors, and use none but 0 afterwards.
unsafe fn close_all_but_stdin() {
    // The kernel's default maximum, used if there is no limit.
    const MAX_DESCRIPTORS: libc::rlim_t = 1 << 20;
    // SAFETY: as the caller promises; the pointer is to a live rlimit.
    unsafe {
        if libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0) == 0 {
            return;
        }
        // A kernel before 5.9, or a system call filter that refuses the call.
        let mut limit = libc::rlimit { rlim_cur: MAX_DESCRIPTORS, rlim_max: MAX_DESCRIPTORS };
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        for descriptor in 1..limit.rlim_cur.min(MAX_DESCRIPTORS) {
            libc::close(descriptor as libc::c_int);
        }
    }
}

/// Writes each of `steps` in order, in a separate process that survives a kill of this one.
///
/// For changes that must be undone in any case: write, use, write back. Every step is tried, so
/// that the last one is done even if an earlier one fails.
///
/// # Errors
/// Returns the first error of a write.
pub fn write_all_even_if_killed(steps: &[(BorrowedFd<'_>, &[u8])]) -> io::Result<()> {
    // SAFETY: the closure makes system calls only, on memory and descriptors of the forked copy.
    let child = unsafe {
        fork_syscalls_only(|| {
            libc::setsid();
            let mut error = 0;
            for (file, bytes) in steps {
                let written = libc::write(file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len());
                if written < 0 && error == 0 {
                    error = *libc::__errno_location();
                }
            }
            libc::_exit(error)
        })
    }?;
    let status = wait(child)?.status;
    match status.code() {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other(format!("the writing process ended by {status}"))),
    }
}

/// Forks with all signals blocked in the child, and runs `child` there.
///
/// # Safety
/// `child` must make async-signal-safe calls only: locks held by other threads stay locked.
unsafe fn fork_syscalls_only(child: impl FnOnce() -> Infallible) -> io::Result<Pid> {
    // Signals stay blocked over the fork, so that no handler of the parent's runs in the child.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    // SAFETY: as the caller promises.
    let forked = unsafe { nix::unistd::fork() };
    if let Ok(ForkResult::Child) = forked {
        child();
    }
    before.thread_set_mask()?;
    let pid = match forked? {
        ForkResult::Parent { child } => Pid::from_raw(child.as_raw()),
        ForkResult::Child => None,
    };
    pid.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The exit status and resource usage of a child.
#[derive(Debug, Clone, Copy)]
pub struct Finished {
    /// The exit status.
    pub status: ExitStatus,
    /// CPU time in user mode, of the child and its reaped descendants.
    pub user: Duration,
    /// CPU time in the kernel, of the child and its reaped descendants.
    pub system: Duration,
    /// Page faults without I/O, of the child and its reaped descendants.
    pub minor_faults: u64,
}

/// Waits for the child `pid` to end.
///
/// # Errors
/// ECHILD if it is not a child, or was already waited for.
pub fn wait(pid: Pid) -> io::Result<Finished> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to live values of the types that wait4 writes.
        let result = unsafe { libc::wait4(pid.as_raw_nonzero().get(), &mut status, 0, usage.as_mut_ptr()) };
        if result > 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: zeroes are a value of rusage, and wait4 has filled it.
    let usage = unsafe { usage.assume_init() };
    Ok(Finished {
        status: ExitStatus::from_raw(status),
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        minor_faults: u64::try_from(usage.ru_minflt).unwrap_or(0),
    })
}

fn time(value: libc::timeval) -> Duration {
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    Duration::from_secs(part(value.tv_sec)) + Duration::from_micros(part(value.tv_usec))
}

/// Requests the real-time scheduling class SCHED_RR for the calling thread, with a priority from 1
/// (lowest) to 99. The thread's children do not inherit it.
///
/// # Errors
/// EPERM without CAP_SYS_NICE; EINVAL for an invalid priority.
pub fn schedule_real_time(priority: u8) -> io::Result<()> {
    // The kernel's sched_param is one int. musl's sched_setscheduler always fails.
    let priority = libc::c_int::from(priority);
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the pointer is to a live int; 0 names the calling thread.
    if unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
