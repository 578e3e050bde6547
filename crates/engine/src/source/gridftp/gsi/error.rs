//! Errors of GSI; every message names the file or the peer, and a remedy.

use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::failure::FailureKind;
use thiserror::Error;

/// An error of authentication with certificates, or of the protected control connection after it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum GsiError {
    /// No proxy or user certificate was found.
    #[error(
        "no credentials for gsiftp://: looked for {looked}; run grid-proxy-init or voms-proxy-init, or set X509_USER_PROXY"
    )]
    NoCredentials {
        /// The searched places.
        looked: String,
    },
    /// A file of the credentials cannot be used.
    #[error("cannot use the credentials in {}: {why}", .path.display())]
    Credentials {
        /// The file.
        path: PathBuf,
        /// The error and its remedy.
        why: String,
    },
    /// The credentials are no longer valid.
    #[error("the {what} in {} expired {} ago: {remedy}", .path.display(), shown_age(*.ago))]
    Expired {
        /// Proxy or certificate.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The time since expiry.
        ago: Duration,
        /// The remedy.
        remedy: &'static str,
    },
    /// No directory of certificate authorities was found.
    #[error(
        "no certificate authorities for gsiftp://: looked for {looked}; install the CA certificates of your grid, or set X509_CERT_DIR"
    )]
    NoTrust {
        /// The searched places.
        looked: String,
    },
    /// A directory of authorities cannot be read, or contains none.
    #[error(
        "cannot use the certificate authorities in {}: {why}; X509_CERT_DIR names another directory", .path.display()
    )]
    Trust {
        /// The directory or file.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// The authority of the server's certificate is not trusted.
    #[error(
        "{host} has a certificate of an unknown authority, {issuer}: if you trust it, add its certificate and signing policy to {}", .directory.display()
    )]
    UnknownAuthority {
        /// The host as connected to.
        host: String,
        /// The issuer's name.
        issuer: String,
        /// The directory of authorities.
        directory: PathBuf,
    },
    /// The authority's own certificate is expired or not yet valid.
    #[error(
        "{host} has a certificate of {issuer}, whose own certificate in {} is {state}: install its present certificate, and check this host's clock", .file.display()
    )]
    AuthorityValidity {
        /// The host as connected to.
        host: String,
        /// The issuer's name.
        issuer: String,
        /// `expired` or `not valid yet`, with the time.
        state: String,
        /// The file with the certificate.
        file: PathBuf,
    },
    /// The server's certificate is expired or not yet valid.
    #[error("the certificate of {host} is {state}: tell the server's operator, and check this host's clock")]
    ServerValidity {
        /// The host as connected to.
        host: String,
        /// `expired` or `not valid yet`, with the time.
        state: String,
    },
    /// The server's certificate is for another host.
    #[error(
        "the certificate of {host} is for {subject}{names}: use a host name that it is for; the server may be an impostor"
    )]
    WrongHost {
        /// The host as connected to.
        host: String,
        /// The certificate's subject.
        subject: String,
        /// The alternative names in the certificate.
        names: String,
    },
    /// The authority's signing policy does not permit the server's name.
    #[error(
        "the signing policy of {authority} does not let it certify {subject}, the certificate of {host}: see {}; tell the authority or the server's operator", .file.display()
    )]
    PolicyViolated {
        /// The host as connected to.
        host: String,
        /// The authority.
        authority: String,
        /// The certified subject.
        subject: String,
        /// The file with the policy.
        file: PathBuf,
    },
    /// The authority has no readable signing policy.
    #[error("no signing policy for {authority}, which certified {host}: {why}; install it at {}", .file.display())]
    NoPolicy {
        /// The host as connected to.
        host: String,
        /// The authority.
        authority: String,
        /// The error.
        why: String,
        /// The expected path of the policy.
        file: PathBuf,
    },
    /// A certificate of the server is revoked.
    #[error("the certificate of {host} is revoked by its authority: do not use this server")]
    Revoked {
        /// The host as connected to.
        host: String,
    },
    /// A revocation list has expired.
    #[error(
        "a revocation list for the certificate of {host} has expired: renew the lists in {} with fetch-crl", .directory.display()
    )]
    ListExpired {
        /// The host as connected to.
        host: String,
        /// The directory of authorities.
        directory: PathBuf,
    },
    /// The server's certificate is rejected for another reason.
    #[error("the certificate of {host} cannot be accepted: {why}")]
    ServerCertificate {
        /// The host as connected to.
        host: String,
        /// The reason.
        why: String,
    },
    /// The server does not offer GSI.
    #[error("{host} refused GSI authentication: {reply}; for a server without GSI use ftp:// or ftps://")]
    NotOffered {
        /// The host as connected to.
        host: String,
        /// The server's reply.
        reply: String,
    },
    /// The server refused the credentials.
    #[error(
        "{host} refused the credentials of {subject}: {reply}; check that the server trusts their authority and that they are not expired"
    )]
    Refused {
        /// The host as connected to.
        host: String,
        /// The subject of the credentials.
        subject: String,
        /// The server's reply.
        reply: String,
    },
    /// The handshake failed, or its messages are invalid.
    #[error("the GSI handshake with {host} failed: {why}")]
    Handshake {
        /// The host as connected to.
        host: String,
        /// The reason.
        why: String,
    },
    /// A protected command or reply cannot be encoded or decoded.
    #[error("the protected control connection with {host} is broken: {why}")]
    Protection {
        /// The host as connected to.
        host: String,
        /// The reason.
        why: String,
    },
}

impl GsiError {
    /// Returns the kind of the failure.
    pub(crate) fn kind(&self) -> FailureKind {
        match self {
            Self::NoCredentials { .. }
            | Self::Credentials { .. }
            | Self::Expired { .. }
            | Self::Refused { .. } => FailureKind::Denied,
            Self::NoTrust { .. } | Self::Trust { .. } => FailureKind::Usage,
            _ => FailureKind::Protocol,
        }
    }
}

/// Formats an age in its largest unit.
fn shown_age(ago: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds")];
    let seconds = ago.as_secs();
    let (unit, name) = UNITS.iter().find(|(unit, _)| seconds >= 2 * unit).unwrap_or(&UNITS[3]);
    format!("{} {name}", seconds / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_shown_by_their_largest_unit() {
        let shown = [0, 119, 120, 7200, 864_000].map(|seconds| shown_age(Duration::from_secs(seconds)));
        assert_eq!(shown, ["0 seconds", "119 seconds", "2 minutes", "2 hours", "10 days"]);
    }
}
