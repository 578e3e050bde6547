//! `longhaul work PLAN`: executes the units of a plan until none is left.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use longhaul_core::event::{Done, JobObserver, JobTag};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_engine::cancel::Cancel;
use longhaul_engine::engine::Engine;
use longhaul_engine::job::JobOptions;
use longhaul_engine::sink::memory_budget::AppBuffer;
use longhaul_farm::plan::{Plan, PlanHeader};
use longhaul_farm::shared_dir::SharedDirStore;
use longhaul_farm::work_run::{FileDisplay, PARALLEL, WorkEnd, WorkRun};
use longhaul_farm::worker::Worker;
use longhaul_scope::record::schema::Side;
use url::Url;

use crate::session::CommandSession;
use crate::transfer_args::TransferArgs;
use crate::values::parallel;
use crate::{exit, interrupt, say};

/// Operands and options of `work`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all units are done; 1 units have failed, see longhaul plan status; 75 units are left, run it \
                        again (Slurm: RequeueExit=75). Others are those of get."
)]
pub(crate) struct WorkArgs {
    /// The plan, as longhaul plan has written it
    #[arg(value_name = "PLAN", value_hint = ValueHint::DirPath)]
    plan: PathBuf,

    /// Transfer this many large files at once; smaller ones go more at once over kept connections
    #[arg(long, value_name = "N", default_value_t = PARALLEL, value_parser = parallel, help_heading = "Speed")]
    parallel: usize,

    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
}

impl FileDisplay for CommandSession {
    fn show(&self, job: &JobTag, transfer: &mut dyn FnMut(JobObserver<'_>) -> Result<Done, Failure>) {
        // The error has been printed, and the unit logs it.
        let _ = self.run(job, transfer, |failure: &Failure| failure.kind);
    }
}

/// Executes units until none is left for this worker.
pub(crate) fn run(args: &WorkArgs) -> anyhow::Result<ExitCode> {
    let cancel = args.transfer.client.connect.cancel();
    let setup = || {
        // First: a worker that is stopped early must release its units too.
        interrupt::listen(&cancel)?;
        let plan = Plan::open(&args.plan)?;
        let options = options(args, plan.header(), &cancel)?;
        let store = SharedDirStore::join(&plan)?;
        Ok::<_, anyhow::Error>((plan, options, store))
    };
    let (plan, options, store) = setup().map_err(|error| exit::not_set_up(&error, &cancel))?;
    let worker = Worker::new(&plan, &store, &cancel)?.with_limit(options.transfer.limit.clone());
    let (what, lines) = (args.plan.display().to_string(), args.transfer.shows_line());
    let side = if worker.server().is_some() { Side::Put } else { Side::Get };
    let session = CommandSession::begin(&args.transfer, side, &what, None, lines, &cancel)?;
    let engine = Engine::new(AppBuffer::Auto);
    let end = WorkRun::new(&engine, &worker, &session, options, &cancel).run(args.parallel);
    session.end();
    let message = match end? {
        WorkEnd::Done => {
            if let Some(note) = plan.header().left_out_note() {
                tracing::warn!("{note}");
            }
            return Ok(ExitCode::SUCCESS);
        }
        end @ WorkEnd::Stopped => format!("{end}: run it again for the rest"),
        end @ WorkEnd::UnitsLeft => format!("{end}: run it again"),
        end @ (WorkEnd::HostFailed | WorkEnd::UnitsFailed(_)) => {
            say::error(format_args!(
                "{end}; longhaul plan status {what} says why, and plan retry lets workers try again"
            ));
            return Ok(exit::UNITS_FAILED.into());
        }
    };
    Ok(exit::said(message, FailureKind::Temporary))
}

fn options(args: &WorkArgs, header: &PlanHeader, cancel: &Cancel) -> anyhow::Result<JobOptions> {
    let common = &args.transfer;
    let source = Url::parse(&header.source).ok();
    source.iter().try_for_each(|url| common.client.check_cleartext(url))?;
    let client = match header.target.server() {
        Some(_) => common.client.config(cancel)?,
        None => common.receiving_client(cancel)?,
    };
    TransferArgs::warn_of_unused_proxy(&client, source.iter());
    Ok(JobOptions {
        transfer: common.transfer_options(common.receiving_limit(), client)?,
        count_pages: common.json || common.shows_line(),
        verify: common.verify,
        keep_time: true,
        logins_for: source,
        ..JobOptions::default()
    })
}
