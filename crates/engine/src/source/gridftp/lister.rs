//! Lists directories over FTP and GridFTP: by MLSD (RFC 3659, section 7), or by LIST if the server
//! lacks it.

use std::io::BufRead;
use std::sync::Arc;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::gridftp::{
    Command, FileKind, ListingEntries, ListingEntry, ListingForm, parse_mlst,
};
use longhaul_core::proto::listing::{ListedEntry, ListedKind, ListingError};
use url::Url;

use super::error::FtpError;
use super::login::ServerAccess;
use super::passive_connection;
use super::remote_address::{RemoteAddress, Scheme};
use super::remote_state::is_unknown_command;
use super::sessions::{FtpSessions, Session};
use crate::cancel::Cancel;
use crate::connect::{Deadline, Received, Transport};
use crate::source::http::SafeUrl;
use crate::source::listing::{
    FileFacts, ListerOptions, MadeDirectory, OpenListing, RemoteDirectories, RemoteEntry, Spool, child_url,
    make_with_parents,
};

/// Lists the directories of an FTP server; shares sessions with file transfers.
#[derive(Clone)]
pub(crate) struct FtpLister {
    sessions: Arc<FtpSessions>,
    options: ListerOptions,
}

impl FtpLister {
    pub(crate) fn new(sessions: &Arc<FtpSessions>, options: ListerOptions) -> Self {
        Self { sessions: Arc::clone(sessions), options }
    }

    fn access(&self, address: Result<RemoteAddress, FtpError>) -> Result<ServerAccess<'_>, FtpError> {
        ServerAccess::new(address?, &self.options.config, &self.sessions)
    }

    fn list_once(&self, directory: &Url, cancel: &Cancel) -> Result<(Spool, ListingForm), Failure> {
        let access = self.access(RemoteAddress::of_directory(directory))?;
        let mut session = access.open_for_directory(cancel)?;
        let (mut transport, form) = passive_connection::list(&access, &mut session, cancel)?;
        let spool = self.receive(&access, &mut transport, cancel)?;
        // proftpd reports the end only after the client has closed, too.
        drop(transport);
        let limit = session.control.limit;
        let reply = session.control.reply("the listing", &Deadline::new(cancel, limit))?;
        let verb = if form == ListingForm::Facts { "MLSD" } else { "LIST" };
        session.control.require_positive(reply, verb)?;
        // LIST has changed the directory of relative paths.
        if form == ListingForm::Facts || access.address.path.starts_with(b"/") {
            self.sessions.keep(session);
        }
        Ok((spool, form))
    }

    /// Creates a directory and its missing parents over one session.
    fn make_once(&self, directory: &Url, cancel: &Cancel) -> Result<bool, Failure> {
        let mut session = self.access(RemoteAddress::of_directory(directory))?.open_for_directory(cancel)?;
        let is_new = make_with_parents(directory, &mut |directory| {
            let access = self.access(RemoteAddress::of_directory(directory))?;
            make_directory(&access, &mut session, cancel)
        })?;
        self.sessions.keep(session);
        Ok(is_new)
    }

    fn receive(
        &self,
        access: &ServerAccess<'_>,
        transport: &mut Transport,
        cancel: &Cancel,
    ) -> Result<Spool, Failure> {
        let at = || access.at().to_owned();
        self.options.receive(access.at(), |buffer, got| {
            if cancel.is_cancelled() {
                return Err(Failure::interrupted());
            }
            match transport.receive(buffer) {
                // Without TLS's closing message, a listing could be truncated on the path. proftpd
                // sends it, Globus 13.24 does not.
                Ok(Received::End { clean: false }) if access.address.scheme != Scheme::GsiFtp => {
                    Err(FtpError::ClosedEarly { at: at(), got }.into())
                }
                received => received.map_err(|source| FtpError::Data { at: at(), source }.into()),
            }
        })?
    }
}

/// Creates one directory; if refused, checks whether it exists.
fn make_directory(
    access: &ServerAccess<'_>,
    session: &mut Session,
    cancel: &Cancel,
) -> Result<MadeDirectory, Failure> {
    let (path, control) = (&access.address.path, &mut session.control);
    control.set_url(access.at());
    let reply = control.ask(&Command::Mkd(path), cancel)?;
    if reply.is_positive() {
        return Ok(MadeDirectory::New);
    }
    let facts = control.ask(&Command::Mlst(path), cancel)?;
    let exists = match parse_mlst(&facts) {
        Ok(facts) => matches!(facts.kind, FileKind::Directory | FileKind::ListedOrParent),
        // RNFR without RNTO renames nothing.
        Err(_) if is_unknown_command(&facts) => control.ask(&Command::Rnfr(path), cancel)?.is_intermediate(),
        Err(_) => false,
    };
    if exists {
        return Ok(MadeDirectory::Exists);
    }
    Ok(MadeDirectory::LacksParent(control.refused("MKD", reply).into()))
}

impl RemoteDirectories for FtpLister {
    fn list(&self, directory: &Url, cancel: &Cancel) -> Result<OpenListing, Failure> {
        let mut directory = directory.clone();
        if !directory.path().ends_with('/') {
            directory.set_path(&format!("{}/", directory.path()));
        }
        let shown = SafeUrl::of(&directory);
        let (spool, form) = self.options.retrying(&shown, cancel, || self.list_once(&directory, cancel))?;
        let reader = spool.into_reader().map_err(|error| {
            Failure::new(FailureKind::Disk, format!("cannot read back the listing of {shown}: {error}"))
        })?;
        let entries = FtpEntries {
            lister: self.clone(),
            cancel: cancel.clone(),
            directory: directory.clone(),
            shown: shown.to_string(),
            entries: ListingEntries::new(reader, form),
        };
        Ok(OpenListing { directory, entries: Box::new(entries) })
    }

    fn look(&self, file: &Url, cancel: &Cancel) -> Result<FileFacts, Failure> {
        self.options.retrying(&SafeUrl::of(file), cancel, || {
            let (session, state) = self.access(RemoteAddress::of(file))?.open(cancel)?;
            self.sessions.keep(session);
            Ok(FileFacts { size: state.size, modified: state.modified })
        })
    }

    fn make(&self, directory: &Url, cancel: &Cancel) -> Result<bool, Failure> {
        self.options.retrying(&SafeUrl::of(directory), cancel, || self.make_once(directory, cancel))
    }

    fn keeps_times(&self, directory: &Url, cancel: &Cancel) -> bool {
        let opened = self
            .access(RemoteAddress::of_directory(directory))
            .and_then(|access| access.open_for_directory(cancel));
        opened.is_ok_and(|session| {
            let keeps = session.features.lists("MFMT");
            self.sessions.keep(session);
            keeps
        })
    }

    fn at_once(&self) -> usize {
        // Each listing needs a login, of which servers allow few.
        2
    }
}

/// The entries of a listing, parsed lazily.
struct FtpEntries<R> {
    lister: FtpLister,
    cancel: Cancel,
    directory: Url,
    shown: String,
    entries: ListingEntries<R>,
}

impl<R> FtpEntries<R> {
    fn entry(&self, entry: Result<ListingEntry, ListingError>) -> Result<RemoteEntry, Failure> {
        let ListingEntry { name, facts } = entry.map_err(|error| {
            Failure::new(FailureKind::Data, format!("refused an entry of {}: {error}", self.shown))
        })?;
        let mut kind = match facts.kind {
            FileKind::File => ListedKind::File,
            FileKind::Directory => ListedKind::Directory,
            FileKind::ListedOrParent | FileKind::Link | FileKind::Other => ListedKind::Other,
        };
        let url = child_url(&self.directory, &name, kind == ListedKind::Directory);
        let (mut size, mut modified) = (facts.size, facts.modify);
        // Only files have a size. Links to directories are left out, because they may lead round in
        // a circle.
        if facts.kind == FileKind::Link
            && let Ok(FileFacts { size: Some(of_target), modified: time }) =
                self.lister.look(&url, &self.cancel)
        {
            (kind, size, modified) = (ListedKind::File, Some(of_target), time);
        }
        let unique =
            facts.unique.filter(|_| kind == ListedKind::Directory).map(|unique| format!("{unique:x}"));
        let size = size.filter(|_| kind == ListedKind::File);
        Ok(RemoteEntry { entry: ListedEntry { name, kind, size, modified, unique }, url })
    }
}

impl<R: BufRead> Iterator for FtpEntries<R> {
    type Item = Result<RemoteEntry, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next().map(|entry| self.entry(entry))
    }
}
