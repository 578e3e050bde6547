//! The one thread that lives inside a lab's namespaces: sockets and commands of the hosts start there.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use longhaul_sys::netns;
use longhaul_sys::process::PidNamespace;

use crate::error::LabError;

use super::Side;

type Job = Box<dyn FnOnce() + Send>;

/// A thread in the mount and PID namespace of a lab, which moves to one host or the other for each job.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Option<Sender<(Side, Job)>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread and makes its namespaces; everything that runs in them dies with the
    /// returned PID namespace.
    pub(super) fn start() -> Result<(Self, [OwnedFd; 2], PidNamespace), LabError> {
        let (jobs, queue) = mpsc::channel::<(Side, Job)>();
        let (tell, ready) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("lab-hosts".to_owned())
            .spawn(move || {
                let hosts = match enter_namespaces() {
                    Ok((hosts, for_caller, pids)) => {
                        let _ = tell.send(Ok((for_caller, pids)));
                        hosts
                    }
                    Err(error) => {
                        let _ = tell.send(Err(error));
                        return;
                    }
                };
                for (side, job) in queue {
                    if let Err(error) = netns::enter_network(&hosts[side as usize]) {
                        tracing::error!("the lab's thread cannot enter the {} host: {error}", side.name());
                        return;
                    }
                    job();
                }
            })
            .map_err(|cause| LabError::Start { what: "start the lab's thread", cause })?;
        let worker = Self { jobs: Some(jobs), thread: Some(thread) };
        let (hosts, pids) = ready.recv().map_err(|_| LabError::WorkerGone)??;
        Ok((worker, hosts, pids))
    }

    /// Runs `job` on a host and returns what it returns; jobs run one after the other.
    pub(super) fn run<R: Send + 'static>(
        &self,
        side: Side,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, LabError> {
        let (tell, answer) = mpsc::channel();
        let job: Job = Box::new(move || drop(tell.send(job())));
        let jobs = self.jobs.as_ref().ok_or(LabError::WorkerGone)?;
        jobs.send((side, job)).map_err(|_| LabError::WorkerGone)?;
        answer.recv().map_err(|_| LabError::WorkerGone)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes two network namespaces, near and far, and a mount and a PID namespace for both.
fn enter_namespaces() -> Result<([OwnedFd; 2], [OwnedFd; 2], PidNamespace), LabError> {
    let failed = |what| move |cause: io::Error| LabError::Namespace { what, cause };
    let network = || netns::enter_new_network().map_err(failed("a network namespace"));
    let hosts = [network()?, network()?];
    let copy = |fd: &OwnedFd| fd.try_clone().map_err(failed("a network namespace"));
    let for_caller = [copy(&hosts[0])?, copy(&hosts[1])?];
    netns::enter_new_mounts().map_err(failed("a mount namespace"))?;
    let pids = PidNamespace::for_children_of_this_thread().map_err(failed("a PID namespace"))?;
    Ok((hosts, for_caller, pids))
}
