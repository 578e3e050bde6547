//! Longhaul's plans: units of work that any number of processes on any hosts execute.
//!
//! ```text
//!  sources --> PlanWriter --> PLAN/plan.json, units.jsonl, units.index         (never changed again)
//!                                   |
//!  Worker <-- ClaimStore::claim ----'   one unit at a time --> engine --> staging directory --> final names
//!     |                                                         '--> uploads: a server gives the names
//!     '-----> ClaimStore::finish                    PLAN/state-ID/{claims,workers,log}           (the state)
//! ```
//!
//! Sources are files of servers, or of a file system that all workers see; the
//! [target](plan_target::PlanTarget) is a directory of such a file system, or of a server. Workers
//! fetch, copy or upload; from one server to another they do not.
//!
//! A **unit** is about 1 GiB or 1,000 files, or a range of a huge file. A **worker** is one
//! process, or one run of an agent. The [`ClaimStore`](store::ClaimStore) says which worker
//! executes which unit; [`SharedDirStore`](shared_dir::SharedDirStore) keeps the claims in the
//! plan's directory, on a file system that all workers see. A [`WorkRun`](work_run::WorkRun)
//! executes the units of a worker with the engine, from the command line or in an agent.
//!
//! ```
//! use std::fs::{self, File};
//! use std::time::Duration;
//!
//! use longhaul_core::units::Bytes;
//! use longhaul_engine::cancel::Cancel;
//! use longhaul_farm::plan_writer::{PlanWriter, UnitSize};
//! use longhaul_farm::worker::{FileEnd, Worker};
//! use longhaul_farm::{plan::Plan, shared_dir::SharedDirStore};
//! use longhaul_farm::{status::PlanStatus, unit::PlannedFile};
//!
//! # let dir = tempfile::tempdir()?;
//! # let [source, path, target] = ["source", "plan", "target"].map(|name| dir.path().join(name));
//! # fs::create_dir(&source)?;
//! # fs::write(source.join("f"), "data")?;
//! let lease = Duration::from_secs(60);
//! let mut writer = PlanWriter::create(&path, &target, UnitSize::default(), lease)?;
//! writer.add(PlannedFile::of_local(&source, "f".as_ref(), "f".into(), Bytes::new(4), None))?;
//! writer.finish()?;
//!
//! // One of the workers. Here it copies each file itself, within the lease. A `WorkRun` calls the
//! // engine, renews the lease (`Worker::keep_alive`) and cleans the target at the end.
//! let plan = Plan::open(&path)?;
//! let store = SharedDirStore::join(&plan)?;
//! let worker = Worker::new(&plan, &store, &Cancel::new())?;
//! while let Some(task) = worker.next_file(1) {
//!     let staged = target.join(task.staged());
//!     let size = fs::copy(source.join(&task.file().path), &staged)?;
//!     File::open(&staged)?.sync_all()?;
//!     worker.finish_file(task, FileEnd::Received(Bytes::new(size)))?;
//! }
//! assert_eq!(fs::read(target.join("f"))?, b"data");
//! assert_eq!(PlanStatus::read(&plan)?.tally.done, 1);
//! # worker.leave()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The state in the plan's directory
//!
//! It is in `PLAN/state-ID`, with the ID of the plan: a worker of an older plan of the same name
//! finds no state, and ends.
//!
//! | file | content | written by |
//! |---|---|---|
//! | `claims/UNIT.EPOCH` | a symbolic link that names the worker | exclusive creation: succeeds for one worker |
//! | `workers/WORKER` | host, process, a counter, units under way, shares of the [limits](budget) | its worker, replaced by a rename at each beat |
//! | `limits.json` | the limits of all workers | `plan`, `plan limit` |
//! | `log/WORKER.log` | lines: unit done, failed, hung or released | its worker, which only appends and syncs |
//!
//! Creating a symbolic link is exclusive and atomic together with its content, also on NFS; no lock
//! is used. Claims exist only for units under way, so that the directory stays small in a plan of a
//! million units.
//!
//! # Invariants
//!
//! - **An epoch is used once.** Log lines hold the epoch of their claim, and the next claim of the
//!   unit has a higher one. A worker that has lost its claim therefore never removes that of
//!   another worker.
//! - **Only `plan` makes the target**, and directories of a server. It puts the file
//!   `TARGET/.longhaul-ID/plan` there, without which a worker does not begin: its host has not
//!   mounted the target.
//! - **A lease expires by observation alone.** A worker is expired if its counter has not changed
//!   in each of several polls that together last longer than the lease. No clock of another host is
//!   read, and the time in which the observer itself was stopped counts as one poll.
//! - **`done` is a fact, not a right.** It is logged after all files of the unit are synced under
//!   their final names, or the range of its file is synced, so that a worker that has lost its
//!   claim may log it as well. A unit may be done twice; it is never done in part.
//! - **A worker reads the logs after it has made a claim.** The holder logs `done` before it
//!   removes its claim; a worker that finds the unit done removes its new claim.
//! - **Workers share no file that is under way**, except one that is cut into ranges. Each receives
//!   into a staging directory of its own, and renames complete files only. Sizes, times and digests
//!   of the plan must match, so that two workers rename equal bytes.
//! - **Ranges of a file are of one state of its source.** The first worker that is answered fixes
//!   its identity beside the shared file; others compare it before they write. The unit that joins
//!   the ranges is claimed when all of them are done, and alone gives the file its name. It records
//!   the file's inode before that, by a link beside the shared file, so that a join that was not
//!   logged is recognised when it is repeated.
//! - **A shared file is made before a range of it is done**, and never again: a new one would have
//!   zeros for that range.
//! - **A worker deletes only its own claims and its own staging directory.**
//! - Stale caches of the file system cost a unit that is done twice, never a wrong file.

mod attempts;
pub mod boot_clock;
pub mod budget;
pub mod error;
pub mod explanation;
mod farm_view;
pub mod files;
mod host_fitness;
pub mod host_gate;
mod lenient;
pub mod plan;
pub mod plan_target;
pub mod plan_writer;
mod presence;
pub mod shared_dir;
pub mod status;
pub mod store;
pub mod target_directory;
pub mod unit;
mod unit_run;
mod units_under_way;
pub mod work_run;
pub mod worker;
