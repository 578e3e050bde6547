//! What a client may request: no more than it needs.

use std::path::{Component, Path};

use crate::error::QueueError;
use crate::request::{Endpoints, IfExistsSetting, TransferRequest};
use crate::settings::SettingsPatch;
use crate::transfer::TransferKind;

/// What a client may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All that the user may: the commands on the Unix socket, and programs with the agent's token.
    All,
    /// All but uploads and plans, which may hold some: the dashboard's page.
    Page,
    /// Downloads of files to new names in the directory of the settings, and control of the queue:
    /// the browser extension, and programs with the token for downloads.
    Downloads,
}

fn forbidden(what: &str) -> Result<(), QueueError> {
    Err(QueueError::Forbidden(format!("this client may not {what}: use longhaul queue")))
}

impl Scope {
    /// Returns the request as this scope permits it.
    ///
    /// # Errors
    /// [`QueueError::Forbidden`].
    pub(crate) fn confined(
        self,
        request: TransferRequest,
        directory: &Path,
    ) -> Result<TransferRequest, QueueError> {
        let request = self.permitted(request)?;
        let output = directory.join(request.target.output.as_deref().unwrap_or(Path::new("")));
        let leaves = output.components().any(|part| part == Component::ParentDir);
        if self == Self::Downloads && (leaves || !output.starts_with(directory)) {
            forbidden(&format!("write outside of {}", directory.display()))?;
        }
        Ok(request)
    }

    /// Returns the request as this scope permits it in any directory. A client that may not make a
    /// request may not give it another link either.
    pub(crate) fn permitted(self, mut request: TransferRequest) -> Result<TransferRequest, QueueError> {
        let Endpoints { paths, url, .. } = &request.endpoints;
        let uploads = request.kind == TransferKind::Put || !paths.is_empty() || url.is_some();
        if uploads && self != Self::All {
            forbidden("upload files")?;
        }
        if request.endpoints.plan.is_some() && self != Self::All {
            forbidden("execute plans")?;
        }
        if self != Self::Downloads {
            return Ok(request);
        }
        if request.kind == TransferKind::Tree {
            forbidden("fetch directories")?;
        }
        // These options apply to the user's own logins, too.
        if request.access.allow_cleartext || request.access.location_trusted {
            forbidden("send logins in clear text or to other servers")?;
        }
        match request.target.if_exists {
            Some(IfExistsSetting::Replace) => forbidden("replace files")?,
            chosen => request.target.if_exists = chosen.or(Some(IfExistsSetting::Rename)),
        }
        Ok(request)
    }

    /// Refuses a login to the dashboard, whose page may do more.
    pub(crate) fn check_login(self) -> Result<(), QueueError> {
        if self == Self::All { Ok(()) } else { forbidden("log in to the dashboard") }
    }

    /// Refuses a change of the directory that confines downloads.
    pub(crate) fn check_settings(self, patch: &SettingsPatch) -> Result<(), QueueError> {
        if self == Self::Downloads && patch.directory.is_some() {
            return forbidden("change the directory of files");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_permits_what_its_clients_need_and_no_more() {
        use Scope::{All, Downloads, Page};
        for (request, scopes) in [
            (r#"{"urls": ["http://h/f"], "name": "f", "cookies": "a=1"}"#, &[All, Page, Downloads][..]),
            (r#"{"urls": ["http://h/f"], "output": "sub/f"}"#, &[All, Page, Downloads]),
            (
                r#"{"urls": ["http://h/f"], "output": "/d/sub/", "if_exists": "fail"}"#,
                &[All, Page, Downloads],
            ),
            (r#"{"urls": ["http://h/f"], "output": "/d2/f"}"#, &[All, Page]),
            (r#"{"urls": ["http://h/f"], "output": "/d/../etc/f"}"#, &[All, Page]),
            (r#"{"urls": ["http://h/f"], "output": "../f"}"#, &[All, Page]),
            (r#"{"urls": ["http://h/f"], "if_exists": "replace"}"#, &[All, Page]),
            (r#"{"urls": ["http://h/f"], "allow_cleartext": true}"#, &[All, Page]),
            (r#"{"urls": ["http://h/f"], "location_trusted": true}"#, &[All, Page]),
            (r#"{"urls": ["http://h/"], "kind": "tree"}"#, &[All, Page]),
            (r#"{"kind": "put", "paths": ["/etc/passwd"], "url": "http://h/"}"#, &[All]),
            (r#"{"kind": "tree", "paths": ["/etc"], "url": "http://h/"}"#, &[All]),
            (r#"{"plan": "/d/p"}"#, &[All]),
        ] {
            let request: TransferRequest = serde_json::from_str(request).unwrap();
            for scope in [All, Page, Downloads] {
                let confined = scope.confined(request.clone(), Path::new("/d"));
                assert_eq!(confined.is_ok(), scopes.contains(&scope), "{scope:?}: {request:?}");
                let replaces = confined.is_ok_and(|confined| confined.target.if_exists.is_none());
                assert!(!replaces || scope != Downloads, "{request:?}");
            }
        }
    }
}
