//! Longhaul's instruments: records, charts and diagnoses of transfers.
//!
//! [`record`] writes and reads the events of a transfer. [`figures`] makes [`chart`]s of records,
//! and [`draw`] renders them. [`diagnosis`] finds what limited a transfer, from a record or a
//! packet [`capture`]; [`running_process`] observes the connections of a program. [`host_facts`]
//! reads the limits of a host.
//!
//! ```
//! use std::time::Duration;
//!
//! use longhaul_core::event::{Event, JobId, JobTag, Observer};
//! use longhaul_core::{advice::LimitedBy, telemetry::Sample, units::Bytes};
//! use longhaul_scope::diagnosis;
//! use longhaul_scope::record::{Record, Recorder, schema::Side};
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("get.jsonl");
//! let (url, interval) = ("http://server/set.tar", Duration::from_millis(100));
//! let recorder = Recorder::create(&path, Side::Get, url, None, interval)?;
//! // Ten seconds of a download with a receive window of 4 MB and an RTT of 200 ms.
//! for tick in 0..=100 {
//!     let moved = Bytes::new(2_000_000 * u64::from(tick));
//!     let mut sample = Sample { moved, ..Sample::default() };
//!     sample.sockets.open = 1;
//!     sample.sockets.windows.rwin = Some(Bytes::new(4_000_000));
//!     sample.sockets.times.min_rtt = Some("200ms".parse()?);
//!     let job = JobTag::new(JobId::new(1), url);
//!     recorder.on(&job, interval * tick, &Event::Sample(Box::new(sample)));
//! }
//! recorder.finish()?;
//!
//! let diagnosis = diagnosis::of_record(&Record::load(&path)?).ok_or("no sample")?;
//! assert_eq!(diagnosis.rate(), "160Mbit".parse()?);
//! assert_eq!(diagnosis.finding.limit, LimitedBy::ReceiveWindow);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod capture;
pub mod chart;
pub mod diagnosis;
pub mod draw;
pub mod figures;
pub mod host_facts;
pub mod record;
pub mod running_process;
