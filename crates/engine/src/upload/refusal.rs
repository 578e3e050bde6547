//! A refused upload: the kind of its failure, what the status means, and the remedy.

use std::time::SystemTime;

use longhaul_core::failure::FailureKind;

use super::answer::UploadAnswer;
use super::error::UploadError;
use crate::source::http::{self, UrlAndPeer};

impl UploadError {
    /// Creates the error of an answer that is not a success.
    pub(super) fn refused(at: &UrlAndPeer, step: &str, answer: &UploadAnswer) -> Self {
        let (head, status) = (&answer.head, answer.head.status());
        let retry_after = head.retry_after(SystemTime::now());
        let meaning = answer.reason.as_deref().unwrap_or(meaning(status));
        let said = format!("{at} refused {step}:");
        let failure = http::refusal(&said, head, kind_of_status(status), meaning, remedy(status));
        Self::Refused { status, retry_after, failure }
    }
}

/// Returns the kind of a refused upload.
fn kind_of_status(status: u16) -> FailureKind {
    use FailureKind as Kind;
    match status {
        404 | 409 | 410 | 413 | 414 => Kind::CannotCreate,
        422 => Kind::Data,
        423 => Kind::Temporary,
        507 => Kind::Disk,
        405 => Kind::Unavailable,
        _ => Kind::of_status(status),
    }
}

/// Returns the likely meaning of a status.
fn meaning(status: u16) -> &'static str {
    match status {
        400 => "the server did not understand; is this the right port and scheme?",
        403 => "this name may not be written there; choose another",
        404 | 409 | 410 => {
            "the directory must exist on the server, and the name must not be that of a directory"
        }
        405 | 501 => "this server takes no files; start `longhaul serve --writable`, or allow PUT there",
        413 => "the server takes only smaller files; raise its limit",
        414 => "the name is too long",
        422 => "what arrived is not what was sent, and is dropped",
        423 => "another upload to this name is under way",
        507 => "the server's disk is full",
        _ => "",
    }
}

/// Returns the remedy for a status.
fn remedy(status: u16) -> &'static str {
    match status {
        401 => "give the server's token with --token FILE, or a login with --user or in ~/.netrc",
        414 => "choose a shorter name",
        422 => "run again",
        423 => "wait for its end, or choose another name",
        507 => "make room there and run again",
        // Its meaning names the remedy.
        501 => "",
        _ => http::remedy(status),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::failure::{Cause, Failure};
    use longhaul_core::proto::http::ResponseHead;
    use longhaul_core::retry::Retry;

    use super::*;

    fn refused(status: u16, explanation: Option<&str>) -> UploadError {
        refused_with(&format!("HTTP/1.1 {status} No\r\n\r\n"), explanation)
    }

    fn refused_with(head: &str, explanation: Option<&str>) -> UploadError {
        let url = crate::source::http::SafeUrl::of(&"http://h/f".parse().unwrap());
        let head = ResponseHead::parse(head.as_bytes()).unwrap();
        let reason = explanation.map(str::to_owned);
        let answer = UploadAnswer { head, reason, metalink: None, is_early: false };
        UploadError::refused(&UrlAndPeer { url, peer: ([127, 0, 0, 1], 80).into() }, "the upload", &answer)
    }

    #[test]
    fn each_refusal_names_a_remedy_and_a_kind() {
        for status in [400, 401, 403, 404, 405, 407, 409, 413, 414, 422, 423, 500, 501, 503, 507] {
            let text = refused(status, None).to_string();
            let is_explained = [": ", "; "].iter().any(|mark| text.contains(&format!(" {status} No{mark}")));
            assert!(is_explained, "{text}");
        }
        for (status, end) in [
            (423, " 423 No: why; wait for its end, or choose another name"),
            (403, " 403 No: why"),
            (414, " 414 No: why; choose a shorter name"),
        ] {
            assert!(refused(status, Some("why")).to_string().ends_with(end), "{status}");
        }
        for (status, kind, retry, cause) in [
            (414, FailureKind::CannotCreate, Retry::Never, Cause::EveryStream),
            (503, FailureKind::Unavailable, Retry::Backoff, Cause::Refused),
            (500, FailureKind::Unavailable, Retry::Backoff, Cause::Connection),
            (423, FailureKind::Temporary, Retry::Never, Cause::EveryStream),
            (405, FailureKind::Unavailable, Retry::Never, Cause::EveryStream),
            (507, FailureKind::Disk, Retry::Never, Cause::EveryStream),
        ] {
            let failure = Failure::from(refused(status, None));
            assert_eq!((failure.kind, failure.retry, failure.cause), (kind, retry, cause), "{failure}");
        }
        for status in [401, 403, 409, 413, 501] {
            assert_eq!(refused(status, None).retry(), Retry::Never, "{status}");
        }
        let busy = refused_with("HTTP/1.1 503 No\r\nRetry-After: 9\r\n\r\n", Some("why"));
        assert_eq!(busy.retry(), Retry::After(Duration::from_secs(9)));
    }
}
