//! Longhaul's engine: bytes move here and nowhere else.
//!
//! ```
//! use std::time::Duration;
//!
//! use longhaul_core::event::{Event, JobId, JobObserver, JobTag, Observer};
//! use longhaul_engine::{AppBuffer, Cancel, Engine, Expected, Job, JobOptions, Output};
//!
//! struct Printed;
//!
//! impl Observer for Printed {
//!     fn on(&self, job: &JobTag, at: Duration, event: &Event) {
//!         if let Event::Progress(progress) = event {
//!             println!("{}: {} after {at:?}", job.url(), progress.bytes.present);
//!         }
//!     }
//! }
//!
//! let (url, path) = ("https://example.org/set.tar", "set.tar");
//! # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join(path);
//! # let url = &format!("http://{}/set.tar", listener.local_addr()?);
//! # std::thread::spawn(move || {
//! #     use std::io::{Read, Write};
//! #     let (mut client, _) = listener.accept().unwrap();
//! #     client.read(&mut [0; 4096]).unwrap();
//! #     client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndata").unwrap();
//! # });
//! let (urls, output) = (vec![url.parse()?], Output::File(path.into()));
//! let job = Job { urls, output, expected: Expected::default(), options: JobOptions::default() };
//! let tag = JobTag::new(JobId::new(1), url);
//! let engine = Engine::new(AppBuffer::Auto);
//! let done = engine.run(&job, JobObserver::new(&tag, &Printed), &Cancel::new())?;
//! println!("{} in {:?}, {}", done.path.display(), done.time, done.goodput);
//! # assert_eq!((std::fs::read_to_string(done.path)?.as_str(), done.bytes.get()), ("data", 4));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//!  network -> disk   engine -> job -> streams -> source -> transfer -> sink
//!  disk -> network   upload (put), or a server -> send -> socket, paced by pacing
//!  disk -> disk      copy -> sink
//! ```
//!
//! An [`Engine`] runs [`Job`]s: each is one file from its URLs to its final name. There is one
//! engine per process: its jobs share connections and 64 MiB of memory, more while a disk stalls. A
//! source (trait in [`source`]; HTTP is one protocol) has streams; each stream leases ranges and
//! receives them into segments of the [`sink`], which writes them. Modules depend only on modules
//! to their right, except for what an engine shares with its jobs.
//!
//! The engine does not depend on a recorder: events go to a
//! [`JobObserver`](longhaul_core::event::JobObserver).

pub mod cancel;
pub mod connect;
pub mod copy;
pub mod delivery_meter;
mod delivery_stall;
pub mod digest;
pub mod engine;
pub mod input_file;
pub mod job;
mod job_cpu;
mod known_paths;
mod limit_watch;
mod open_sockets;
pub mod pacing;
pub mod path_memory;
pub mod pem;
pub mod pending_steps;
pub mod probe;
pub mod rate_limit;
mod retry_loop;
pub mod sampling;
pub mod send;
pub mod sink;
pub mod source;
mod streams;
mod sustained_rate;
pub mod telemetry;
mod threads;
mod transfer;
pub mod tree;
pub mod tree_digest;
pub mod upload;
pub mod user_state;
pub mod verify;

pub use cancel::Cancel;
pub use engine::Engine;
pub use job::{Expected, Job, JobOptions};
pub use sink::memory_budget::AppBuffer;
pub use sink::output::Output;
