//! Lists the paused uploads of a directory as JSON.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use longhaul_engine::sink::part_file;
use longhaul_engine::sink::part_names::{is_part, target_of};
use rustix::fs::Dir;
use rustix::io::Errno;
use serde::Serialize;

use crate::paths::beneath_root::Found;
use crate::paths::disks::Disk;
use crate::reply::Reply;
use crate::reply::static_files::too_many_listings;
use crate::upload::Uploads;
use crate::upload::registry::upload_journal::{holder_of, id_of};
use crate::upload::request::command::UploadCommand;
use crate::upload::request::refusal;

/// The most uploads listed.
const MAX_LISTED: usize = 1000;

#[derive(Serialize)]
struct WrittenListing {
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<u64>,
    /// Instead of `used` while file systems have not been scanned, or do not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_at_least: Option<u64>,
    uploads: Vec<WrittenUpload>,
}

#[derive(Serialize)]
struct WrittenUpload {
    name: String,
    /// As DELETE takes it.
    id: String,
    size: u64,
    received: u64,
    written: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl Uploads {
    /// Lists the uploads of the command's directory, and the space of uploads in all: those of its
    /// token, and with the right to delete those of all.
    pub(crate) fn list(&self, command: &UploadCommand, disk: &Disk) -> Result<Reply, Reply> {
        let grant = &command.grant;
        let permit = self.static_files.listing_permit(&grant.requester(), disk);
        let [share, _permit] = permit.ok_or_else(too_many_listings)?;
        let uploads = self.uploads_in(command).map_err(|error| refusal::directory(&error))?;
        let own = grant.holder.as_ref().filter(|_| !grant.may_replace);
        let (used, counts_all) = (self.partials.used(own).get(), self.partials.counts_all());
        let quota = if own.is_some() { grant.quota } else { self.partials.quota() };
        let listing = WrittenListing {
            quota: quota.map(|quota| quota.get()),
            used: counts_all.then_some(used),
            used_at_least: (!counts_all).then_some(used),
            uploads,
        };
        Ok(Reply::json(&listing).holding(share))
    }

    fn uploads_in(&self, command: &UploadCommand) -> io::Result<Vec<WrittenUpload>> {
        if command.path.is_hidden() && !self.static_files.hidden {
            return Err(Errno::NOENT.into());
        }
        let root = &self.static_files.root;
        let directory = root.directory(command.path.names())?;
        let Found::Directory(entries) = root.find(command.path.names(), true)? else {
            return Err(Errno::NOTDIR.into());
        };
        let mut uploads = Vec::new();
        for entry in Dir::read_from(entries)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let target = target_of(name).filter(|target| {
                is_part(name) && (self.static_files.hidden || target.first() != Some(&b'.'))
            });
            let Some(target) = target else { continue };
            let found = part_file::journal_of(&directory, OsStr::from_bytes(target));
            let Some(journal) = found.ok().and_then(|found| found.sound()) else { continue };
            let holder = holder_of(&journal);
            let Some(id) = id_of(&journal).filter(|_| command.grant.may_discard(holder)) else { continue };
            // An upload that has finished since then is left out.
            let Ok(part) = directory.look(OsStr::from_bytes(name), false) else { continue };
            let written =
                SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(part.st_ctime).unwrap_or(0));
            uploads.push(WrittenUpload {
                name: String::from_utf8_lossy(target).into_owned(),
                id: id.to_owned(),
                size: journal.size.get(),
                received: journal.committed.total().get(),
                written: httpdate::fmt_http_date(written),
                expires: self.partials.expires(written).map(httpdate::fmt_http_date),
                token: holder.map(str::to_owned),
            });
            if uploads.len() == MAX_LISTED {
                break;
            }
        }
        uploads.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(uploads)
    }
}
