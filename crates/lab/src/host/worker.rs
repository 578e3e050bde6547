//! The thread inside a lab's namespaces; it opens the hosts' sockets and starts their commands.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use longhaul_sys::netns;
use longhaul_sys::process::PidNamespace;

use crate::error::LabError;

use super::HostSide;
use super::hosts_file;
use super::network_files::NetworkFiles;

type HostJob = Box<dyn FnOnce() + Send>;

/// The namespaces of a lab: for each host its network namespace and the kernel files opened in it.
pub(super) struct Namespaces {
    pub(super) networks: [OwnedFd; 2],
    pub(super) files: [NetworkFiles; 2],
    /// The PID namespace; dropping it kills all processes of the lab.
    pub(super) processes: PidNamespace,
}

/// A thread in a lab's mount and PID namespaces, which enters a host's network namespace for each
/// job.
#[derive(Debug)]
pub(super) struct NamespaceWorker {
    jobs: Option<Sender<(HostSide, HostJob)>>,
    thread: Option<JoinHandle<()>>,
}

impl NamespaceWorker {
    /// Starts the thread and creates its namespaces.
    ///
    /// `pairs` is the number of host pairs with names in `/etc/hosts`.
    pub(super) fn start(pairs: u16) -> Result<(Self, Namespaces), LabError> {
        let (jobs, queue) = mpsc::channel::<(HostSide, HostJob)>();
        let (report, ready) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("lab-hosts".to_owned())
            .spawn(move || {
                let hosts = match enter_namespaces(pairs) {
                    Ok((hosts, for_caller)) => {
                        let _ = report.send(Ok(for_caller));
                        hosts
                    }
                    Err(error) => {
                        let _ = report.send(Err(error));
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
            .map_err(LabError::host("start the lab's thread"))?;
        let worker = Self { jobs: Some(jobs), thread: Some(thread) };
        let namespaces = ready.recv().map_err(|_| LabError::worker_gone())??;
        Ok((worker, namespaces))
    }

    /// Runs `job` on a host and returns its result; jobs run sequentially.
    pub(super) fn run<R: Send + 'static>(
        &self,
        side: HostSide,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, LabError> {
        let (report, answer) = mpsc::channel();
        let job: HostJob = Box::new(move || drop(report.send(job())));
        let jobs = self.jobs.as_ref().ok_or_else(LabError::worker_gone)?;
        jobs.send((side, job)).map_err(|_| LabError::worker_gone())?;
        answer.recv().map_err(|_| LabError::worker_gone())
    }
}

impl Drop for NamespaceWorker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Creates network namespaces for client and server, and a mount and a PID namespace for both.
fn enter_namespaces(pairs: u16) -> Result<([OwnedFd; 2], Namespaces), LabError> {
    let failed = |what| move |cause: io::Error| LabError::namespace(what, &cause);
    let host = || {
        let network = netns::enter_new_network().map_err(failed("a network namespace"))?;
        // Must precede the PID namespace, whose /proc does not show this thread.
        Ok((network, NetworkFiles::of_this_thread()?))
    };
    let ((client, client_files), (server, server_files)) = (host()?, host()?);
    let copy = |fd: &OwnedFd| fd.try_clone().map_err(failed("a network namespace"));
    let networks = [copy(&client)?, copy(&server)?];
    netns::enter_new_mounts().map_err(failed("a mount namespace"))?;
    hosts_file::mount(pairs);
    let processes = PidNamespace::for_children_of_this_thread().map_err(failed("a PID namespace"))?;
    let files = [client_files, server_files];
    Ok(([client, server], Namespaces { networks, files, processes }))
}
