//! Converts a request to a job of the engine.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use longhaul_core::checksum::Checksum;
use longhaul_core::pace::{PACE_HEADER, Pace};
use longhaul_core::proto::http::HeaderField;
use longhaul_core::units::Bytes;
use longhaul_engine::engine::Engine;
use longhaul_engine::job::{Expected, Job, JobOptions, Streams, TransferOptions};
use longhaul_engine::rate_limit::RateLimit;
use longhaul_engine::sampling::SampleInterval;
use longhaul_engine::send::ReaderChoice;
use longhaul_engine::sink::output::{IfExists, Output};
use longhaul_engine::sink::writer::WriterChoice;
use longhaul_engine::source::http::{ClientConfig, Credentials};
use longhaul_engine::upload::PutRequest;
use longhaul_engine::user_state;
use longhaul_engine::verify::Verify;
use url::Url;

use super::{
    IfExistsSetting, MetalinkFacts, StreamsSetting, TransferRequest, WriterSetting, ZonedUrl, invalid,
};
use crate::error::QueueError;
use crate::transfer::TransferKind;

/// The context of a run, beside its request.
pub(crate) struct RunContext<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) limit: RateLimit,
    pub(crate) sample: SampleInterval,
    /// The final path of the partial file of an earlier run: a new link may suggest another.
    pub(crate) target: Option<PathBuf>,
    /// The size in the browser's answer, for an offer.
    pub(crate) offered_size: Option<Bytes>,
}

impl TransferRequest {
    pub(super) fn client(&self) -> Result<ClientConfig, QueueError> {
        let mut headers = Vec::new();
        for text in &self.access.headers {
            headers.push(
                text.parse::<HeaderField>()
                    .map_err(|error| invalid(format!("a header cannot be used: {error}")))?,
            );
        }
        for (name, value) in [("Cookie", &self.access.cookies), ("Referer", &self.access.referrer)] {
            if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
                headers.push(
                    HeaderField::new(name, value)
                        .map_err(|error| invalid(format!("cannot use {name}: {error}")))?,
                );
            }
        }
        // Those that the client itself writes fail now, too, and not when the transfer runs.
        for (name, value) in [("User-Agent", &self.access.user_agent), ("the token", &self.access.token)] {
            if let Some(value) = value {
                HeaderField::new("X", value)
                    .map_err(|error| invalid(format!("cannot use {name}: {error}")))?;
            }
        }
        let mut client = ClientConfig::from_env();
        client.requests.headers = headers;
        client.requests.location_trusted = self.access.location_trusted;
        if let Some(name) = &self.access.user_agent {
            client.requests.user_agent.clone_from(name);
        }
        client.logins.credentials = self.access.token.clone().map(Credentials::Bearer);
        client.logins.allow_cleartext = self.access.allow_cleartext;
        client.addresses.zones = self.zones()?;
        Ok(client)
    }

    /// Returns the zones of the URLs, by address.
    fn zones(&self) -> Result<BTreeMap<Ipv6Addr, u32>, QueueError> {
        let mut zones = BTreeMap::new();
        for url in self.endpoints.every_url() {
            let Some((address, zone)) = ZonedUrl::parse(url)?.zone()? else { continue };
            if *zones.entry(address).or_insert(zone) != zone {
                let why = format!("the address {address} is given with two zones: add a transfer for each");
                return Err(invalid(why));
            }
        }
        Ok(zones)
    }

    pub(super) fn pace(&self) -> Result<Pace, QueueError> {
        let parse = |text: &String| text.parse::<Pace>().map_err(|error| invalid(format!("pace: {error}")));
        self.tuning.pace.as_ref().map_or(Ok(Pace::Auto), parse)
    }

    pub(super) fn checksum(&self) -> Result<Option<Checksum>, QueueError> {
        let parse = |text: &String| text.parse().map_err(|error| invalid(format!("checksum: {error}")));
        self.target.checksum.as_ref().map(parse).transpose()
    }

    /// Returns the URLs of a normalised request for a file or a tree, and the options of its jobs:
    /// logins are for the first server.
    ///
    /// # Errors
    /// [`QueueError::Invalid`].
    pub(crate) fn sources(&self, context: &RunContext<'_>) -> Result<(Vec<Url>, JobOptions), QueueError> {
        let urls = self.endpoints.urls.iter().map(|url| ZonedUrl::parse(url).map(|parsed| parsed.url));
        let urls: Vec<Url> = urls.collect::<Result<_, _>>()?;
        let first = urls.first().cloned().ok_or_else(|| invalid("there is no URL"))?;
        let options = self.options(context, Some(first))?;
        Ok((urls, options))
    }

    /// Creates the engine's job of a normalised request for a file.
    ///
    /// # Errors
    /// [`QueueError::Invalid`].
    pub(crate) fn get(&self, context: &RunContext<'_>) -> Result<Job, QueueError> {
        let (urls, mut options) = self.sources(context)?;
        let (output, name, if_exists) = self.destination(context.target.as_deref());
        options.existing.if_exists = Some(if_exists);
        let metalink = self.metalink.as_ref();
        let expected = Expected {
            name,
            size: metalink.and_then(|facts| facts.size).or(context.offered_size),
            checksums: self.checksum()?.into_iter().collect(),
            pieces: metalink.and_then(MetalinkFacts::pieces),
            ..Expected::default()
        };
        Ok(Job { urls, output, expected, options })
    }

    /// Returns the output, the file's name if known, and what is done where a file of the name
    /// exists; `target` is the final path of an earlier run's partial file.
    fn destination(&self, target: Option<&Path>) -> (Output, Option<String>, IfExists) {
        let output = self.target.output.clone().unwrap_or_default();
        let names_file = !output.as_os_str().as_encoded_bytes().ends_with(b"/")
            && self.target.name.is_none()
            && !output.is_dir();
        let by_default = if names_file { IfExistsSetting::Replace } else { IfExistsSetting::Rename };
        let if_exists = match self.target.if_exists.unwrap_or(by_default) {
            IfExistsSetting::Replace => IfExists::Replace,
            IfExistsSetting::Fail => IfExists::Fail,
            IfExistsSetting::Rename => IfExists::Number { resumes: target.is_some() },
        };
        if names_file {
            let numbered = target.filter(|_| matches!(if_exists, IfExists::Number { .. }));
            return (Output::File(numbered.map_or(output, Path::to_owned)), None, if_exists);
        }
        let known = target.and_then(|target| Some(target.file_name()?.to_string_lossy().into_owned()));
        (Output::Directory(output), known.or_else(|| self.target.name.clone()), if_exists)
    }

    /// Returns the settings that downloads and uploads share.
    fn transfer_options(&self, context: &RunContext<'_>) -> Result<TransferOptions, QueueError> {
        let streams = match self.tuning.streams {
            StreamsSetting::Auto => Streams::Auto,
            StreamsSetting::Fixed(n) => Streams::Fixed(n),
        };
        Ok(TransferOptions {
            streams,
            memory: user_state::path_memory(),
            sample: Some(context.sample.clone()),
            pace: self.pace()?,
            limit: Some(context.limit.clone()),
            client: self.client()?,
            ..TransferOptions::default()
        })
    }

    /// Returns the options of downloads. A plan names the server that logins are for.
    ///
    /// # Errors
    /// [`QueueError::Invalid`].
    pub(crate) fn options(
        &self,
        context: &RunContext<'_>,
        logins_for: Option<Url>,
    ) -> Result<JobOptions, QueueError> {
        let mut transfer = self.transfer_options(context)?;
        let (client, pace) = (&mut transfer.client, transfer.pace);
        if pace != Pace::Auto && !client.requests.headers.iter().any(|header| header.is(PACE_HEADER)) {
            client.requests.headers.push(HeaderField::new(PACE_HEADER, &pace.header()).map_err(invalid)?);
        }
        if let Pace::Rate(rate) = pace {
            // Servers that do not pace are limited here.
            transfer.limit = Some(context.limit.within(Some(rate)));
        }
        Ok(JobOptions {
            transfer,
            count_pages: true,
            writer: match self.tuning.writer {
                WriterSetting::Auto => WriterChoice::Auto,
                WriterSetting::Direct => WriterChoice::Direct,
                WriterSetting::Mmap => WriterChoice::Mmap,
                WriterSetting::Buffered => WriterChoice::Buffered,
            },
            assume_unchanged: self.assume_unchanged,
            keep_time: matches!(self.kind, TransferKind::Tree | TransferKind::Plan),
            logins_for,
            ..JobOptions::default()
        })
    }

    /// Creates the upload of the file or the directory at `path`.
    ///
    /// # Errors
    /// [`QueueError::Invalid`].
    pub(crate) fn put(&self, path: &Path, context: &RunContext<'_>) -> Result<PutRequest, QueueError> {
        Ok(PutRequest {
            path: path.to_owned(),
            url: ZonedUrl::parse(self.endpoints.url.as_deref().unwrap_or_default())?.url,
            reader: ReaderChoice::Auto,
            verify: Some(Verify::Passing),
            congestion: None,
            transfer: self.transfer_options(context)?,
            sessions: context.engine.ftp_sessions(),
        })
    }
}
