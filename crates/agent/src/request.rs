//! The request of a client for a transfer.

mod engine_job;
mod import;
mod options;
mod zoned_url;

use std::path::{Path, PathBuf};

use clap::Args;
use longhaul_core::tune::MAX_FIXED_STREAMS;
use longhaul_engine::source::http::SafeUrl;
use longhaul_engine::upload::destination;
use serde::{Deserialize, Serialize};
use url::Url;
use utoipa::ToSchema;

use crate::error::QueueError;
use crate::settings::check_limit;
use crate::transfer::TransferKind;

pub(crate) use engine_job::RunContext;
pub use import::{MetalinkFacts, of_metalink, of_text};
pub use options::{
    AccessOptions, Endpoints, IfExistsSetting, QueueOptions, StreamsSetting, TargetFile, TuningOptions,
    WriterSetting,
};
use zoned_url::ZonedUrl;

/// The maximum number of sources of a file: more than its streams would use.
const MAX_SOURCES: usize = 16;
/// The maximum priority, and negated the minimum: listings are ordered by the negated value, which
/// must be representable.
const MAX_PRIORITY: i64 = 1_000_000;

/// The transfer to perform. A `get` requires only `urls`, a `put` requires `paths` and `url`.
// The fields of the API's JSON, one flat object; those that are not skipped are options of
// `longhaul queue add`, too. Serde checks for unknown fields once all groups have taken theirs: the
// groups themselves must permit them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, Args)]
#[serde(default, deny_unknown_fields)]
pub struct TransferRequest {
    /// The direction of the transfer.
    #[arg(skip)]
    pub kind: TransferKind,
    /// The ends of the transfer.
    #[serde(flatten)]
    #[arg(skip)]
    pub endpoints: Endpoints,
    /// The file to write.
    #[serde(flatten)]
    #[command(flatten)]
    pub target: TargetFile,
    /// The headers and secrets that the server receives.
    #[serde(flatten)]
    #[command(flatten)]
    pub access: AccessOptions,
    /// How fast the bytes move.
    #[serde(flatten)]
    #[command(flatten)]
    pub tuning: TuningOptions,
    /// When the transfer runs.
    #[serde(flatten)]
    #[command(flatten)]
    pub queue: QueueOptions,
    /// Whether ranges are combined even if the server provides no strong validator.
    #[arg(skip)]
    pub assume_unchanged: bool,
    /// An identifier of this request: a second request with an equal key adds nothing, and returns
    /// the first one's transfer.
    #[arg(skip)]
    pub key: Option<String>,
    /// The identifier for aria2's clients, if one has chosen it.
    #[serde(skip)]
    #[arg(skip)]
    pub gid: Option<u64>,
    /// The file's properties in a metalink.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    #[arg(skip)]
    pub metalink: Option<MetalinkFacts>,
}

fn invalid(message: impl std::fmt::Display) -> QueueError {
    QueueError::Invalid(message.to_string())
}

/// Rejects a priority beyond the limits.
pub(crate) fn check_priority(priority: i64) -> Result<(), QueueError> {
    if !(-MAX_PRIORITY..=MAX_PRIORITY).contains(&priority) {
        return Err(invalid(format!("the priority must be from -{MAX_PRIORITY} to {MAX_PRIORITY}")));
    }
    Ok(())
}

impl TransferRequest {
    /// Requests the file that these URLs have.
    pub(crate) fn of_urls(urls: Vec<String>) -> Self {
        Self { endpoints: Endpoints { urls, ..Endpoints::default() }, ..Self::default() }
    }

    /// Validates the request, makes its paths absolute, and splits a request with several paths.
    ///
    /// # Errors
    /// [`QueueError::Invalid`].
    pub(crate) fn normalised(mut self, directory: &Path) -> Result<Vec<Self>, QueueError> {
        self.client()?;
        self.pace()?;
        self.checksum()?;
        check_priority(self.queue.priority)?;
        if matches!(self.tuning.streams, StreamsSetting::Fixed(n) if !(1..=MAX_FIXED_STREAMS).contains(&n)) {
            return Err(invalid(format!(
                "the number of streams must be auto, or from 1 to {MAX_FIXED_STREAMS}"
            )));
        }
        check_limit(self.tuning.limit_bps)?;
        if let Some(name) = &self.target.name {
            longhaul_core::proto::listing::check_name(name.as_bytes())
                .map_err(|error| invalid(format!("cannot use the name of the file: {error}")))?;
        }
        if self.endpoints.plan.is_some() || self.kind == TransferKind::Plan {
            return self.normalised_plan();
        }
        if !self.endpoints.paths.is_empty() || self.kind == TransferKind::Put {
            return self.normalised_puts();
        }
        match &self.endpoints.urls[..] {
            [] => return Err(invalid("there is no URL to fetch")),
            [_] => {}
            [_, _, ..] if self.kind == TransferKind::Tree => {
                return Err(invalid("a tree has one URL: add others as transfers of their own"));
            }
            all if all.len() > MAX_SOURCES => {
                return Err(invalid(format!("a file has at most {MAX_SOURCES} sources")));
            }
            _ => {}
        }
        for url in &mut self.endpoints.urls {
            *url = ZonedUrl::parse(url)?.to_string();
        }
        let output = self.target.output.take().unwrap_or_default();
        let as_directory =
            output.as_os_str().is_empty() || output.as_os_str().as_encoded_bytes().ends_with(b"/");
        let mut output = directory.join(output);
        if as_directory && self.kind == TransferKind::Get {
            output.push("");
        }
        self.target.output = Some(output);
        Ok(vec![self])
    }

    /// Checks the request for a worker of a plan, which names sources, target and checksums itself.
    fn normalised_plan(mut self) -> Result<Vec<Self>, QueueError> {
        let Some(plan) = self.endpoints.plan.take().filter(|plan| plan.is_absolute()) else {
            return Err(invalid("a worker of a plan needs the absolute path of the plan"));
        };
        if self.endpoints != Endpoints::default() || self.target != TargetFile::default() {
            return Err(invalid("a plan has its own sources, target and checksums: name the plan alone"));
        }
        self.kind = TransferKind::Plan;
        // The workers of one plan are known by its path.
        self.endpoints.plan = Some(plan.components().collect());
        Ok(vec![self])
    }

    /// Splits a put of several paths into one request each.
    fn normalised_puts(mut self) -> Result<Vec<Self>, QueueError> {
        let to = self.endpoints.url.as_deref().or(self.endpoints.urls.first().map(String::as_str));
        let to = ZonedUrl::parse(to.ok_or_else(|| invalid("an upload needs the URL to put to"))?)?;
        if self.endpoints.paths.is_empty() {
            return Err(invalid("an upload needs the paths of files"));
        }
        if self.endpoints.paths.len() > 1 && !to.url.path().ends_with('/') {
            return Err(invalid("several files need a directory to go to: end the URL in /"));
        }
        let paths = std::mem::take(&mut self.endpoints.paths);
        let of_path = |path: PathBuf| {
            if !path.is_absolute() {
                return Err(invalid(format!("the path {} is not absolute", path.display())));
            }
            let is_directory = std::fs::metadata(&path)
                .map_err(|error| invalid(format!("cannot read {}: {error}", path.display())))?
                .is_dir();
            let (kind, url) = match is_directory {
                true => (TransferKind::Tree, to.url.clone()),
                false => (TransferKind::Put, destination(&to.url, &path).map_err(invalid)?),
            };
            let url = ZonedUrl { url, ..to.clone() }.to_string();
            let endpoints = Endpoints { url: Some(url), paths: vec![path], ..Endpoints::default() };
            Ok(Self { kind, endpoints, ..self.clone() })
        };
        paths.into_iter().map(of_path).collect()
    }

    /// Replaces the link of the file, and its headers if given; mirrors stay. Secrets of the old
    /// link are sent to no other host, scheme or port.
    ///
    /// # Errors
    /// [`QueueError::Invalid`].
    pub(crate) fn refresh(&mut self, url: &str, headers: Option<Vec<String>>) -> Result<(), QueueError> {
        if self.endpoints.plan.is_some() {
            return Err(invalid("a plan has its own links: make it anew with fresh ones"));
        }
        let url = ZonedUrl::parse(url)?;
        let old = self.endpoints.every_url().next().map(|old| ZonedUrl::parse(old)).transpose()?;
        let is_elsewhere = old.is_none_or(|old| old.server() != url.server());
        if headers.is_some() || is_elsewhere {
            // Only the given headers are sent with the new link.
            (self.access.token, self.access.cookies, self.access.referrer) = (None, None, None);
            self.access.headers = headers.unwrap_or_default();
        }
        match (self.endpoints.urls.first_mut(), &mut self.endpoints.url) {
            (Some(first), _) => *first = url.to_string(),
            (None, target) => *target = Some(url.to_string()),
        }
        self.client().map(drop)
    }

    /// Returns the URLs without secrets and zones.
    pub(crate) fn shown_urls(&self) -> Vec<String> {
        let parsed = self.endpoints.every_url().filter_map(|url| ZonedUrl::parse(url).ok());
        parsed.map(|parsed| SafeUrl::of(&parsed.url).to_string()).collect()
    }

    /// Returns the URL that defines the file or tree to get, without its zone.
    pub(crate) fn first_url(&self) -> Option<Url> {
        Some(ZonedUrl::parse(self.endpoints.urls.first()?).ok()?.url)
    }

    /// Returns the page that contains the link, without secrets, if a browser can open it.
    pub(crate) fn shown_page(&self) -> Option<String> {
        let mut page: Url = self.queue.page_url.as_ref()?.parse().ok()?;
        if !matches!(page.scheme(), "http" | "https") {
            return None;
        }
        page.set_username("").and_then(|()| page.set_password(None)).ok()?;
        page.set_query(None);
        page.set_fragment(None);
        Some(page.into())
    }

    /// Returns the displayed name of the transfer before the server has named the file.
    pub(crate) fn shown_name(&self) -> String {
        let last_of_url = || {
            let url = self.first_url()?;
            let last = url.path_segments()?.rfind(|segment| !segment.is_empty())?.to_owned();
            Some(percent_encoding::percent_decode_str(&last).decode_utf8_lossy().into_owned())
        };
        let last_of = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
        let of_output = || {
            let output = self.target.output.as_ref()?;
            (!output.as_os_str().as_encoded_bytes().ends_with(b"/") && !output.is_dir())
                .then(|| last_of(output))?
        };
        let local = self.endpoints.paths.first().or(self.endpoints.plan.as_ref());
        let known = self.target.name.clone().or_else(|| local.and_then(|path| last_of(path)));
        known.or_else(of_output).or_else(last_of_url).unwrap_or_else(|| "download".to_owned())
    }

    /// Returns the local file or directory, as far as known.
    pub(crate) fn shown_path(&self) -> String {
        let Endpoints { paths, plan, .. } = &self.endpoints;
        let path = paths.first().or(plan.as_ref()).or(self.target.output.as_ref());
        path.map(|path| path.display().to_string()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
