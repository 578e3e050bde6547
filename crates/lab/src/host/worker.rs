//! The thread inside a lab's namespaces, on which the hosts' sockets and commands are started.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use longhaul_sys::netns;
use longhaul_sys::process::PidNamespace;

use crate::error::LabError;

use super::HostSide;
use super::hosts_file;
use super::listening::Listening;
use super::tcp_memory::TcpMemoryPressure;

type Job = Box<dyn FnOnce() + Send>;

/// What the thread hands out when it is inside: for each host its network namespace and what the kernel says of it.
pub(super) struct Namespaces {
    pub(super) networks: [OwnedFd; 2],
    pub(super) tcp_memory: [TcpMemoryPressure; 2],
    pub(super) listening: [Listening; 2],
    /// Everything that runs in the namespaces dies with it.
    pub(super) processes: PidNamespace,
}

/// A thread in the mount and PID namespace of a lab, which moves to one host or the other for each job.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Option<Sender<(HostSide, Job)>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread and makes its namespaces.
    ///
    /// The hosts know the names of so many `pairs`.
    pub(super) fn start(pairs: u16) -> Result<(Self, Namespaces), LabError> {
        let (jobs, queue) = mpsc::channel::<(HostSide, Job)>();
        let (tell, ready) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("lab-hosts".to_owned())
            .spawn(move || {
                let hosts = match enter_namespaces(pairs) {
                    Ok((hosts, for_caller)) => {
                        let _ = tell.send(Ok(for_caller));
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
        let namespaces = ready.recv().map_err(|_| LabError::WorkerGone)??;
        Ok((worker, namespaces))
    }

    /// Runs `job` on a host and returns what it returns; jobs run one after the other.
    pub(super) fn run<R: Send + 'static>(
        &self,
        side: HostSide,
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

/// Makes two network namespaces, client and server, and a mount and a PID namespace for both.
fn enter_namespaces(pairs: u16) -> Result<([OwnedFd; 2], Namespaces), LabError> {
    let failed = |what| move |cause: io::Error| LabError::Namespace { what, cause };
    let host = || {
        let network = netns::enter_new_network().map_err(failed("a network namespace"))?;
        // Here, as the /proc of the PID namespace below does not know this thread.
        Ok((network, TcpMemoryPressure::of_this_thread()?, Listening::of_this_thread()?))
    };
    let ((client, client_memory, client_ports), (server, server_memory, server_ports)) = (host()?, host()?);
    let copy = |fd: &OwnedFd| fd.try_clone().map_err(failed("a network namespace"));
    let networks = [copy(&client)?, copy(&server)?];
    netns::enter_new_mounts().map_err(failed("a mount namespace"))?;
    hosts_file::mount(pairs);
    let processes = PidNamespace::for_children_of_this_thread().map_err(failed("a PID namespace"))?;
    let tcp_memory = [client_memory, server_memory];
    let listening = [client_ports, server_ports];
    Ok(([client, server], Namespaces { networks, tcp_memory, listening, processes }))
}
