//! Where the files of a plan go.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

use crate::unit::path_text;

/// Where the files of a plan go; in JSON a path, which begins with a slash, or a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanTarget {
    /// A directory that all workers see, by its absolute path.
    Directory(PathBuf),
    /// A directory of a server, to which workers upload. The URL holds no login, and ends in a
    /// slash.
    Server(Url),
}

impl PlanTarget {
    /// Returns the directory that all workers see, unless they upload.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Directory(path) => Some(path),
            Self::Server(_) => None,
        }
    }

    /// Returns the URL to which workers upload, if they do.
    pub fn server(&self) -> Option<&Url> {
        match self {
            Self::Directory(_) => None,
            Self::Server(url) => Some(url),
        }
    }
}

impl<P: AsRef<Path> + ?Sized> From<&P> for PlanTarget {
    fn from(path: &P) -> Self {
        Self::Directory(path.as_ref().to_owned())
    }
}

impl From<Url> for PlanTarget {
    fn from(mut url: Url) -> Self {
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        Self::Server(url)
    }
}

impl fmt::Display for PlanTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::Server(url) => url.fmt(f),
        }
    }
}

impl Serialize for PlanTarget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Directory(path) => path_text::serialize(path, serializer),
            Self::Server(url) => serializer.serialize_str(url.as_str()),
        }
    }
}

impl<'de> Deserialize<'de> for PlanTarget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.starts_with('/') {
            return Ok(Self::Directory(path_text::parse(&text)));
        }
        Url::parse(&text).map(Self::Server).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn target_is_read_as_written() {
        let odd = Path::new(OsStr::from_bytes(b"/d/100% \xff"));
        let url = |text: &str| PlanTarget::from(Url::parse(text).unwrap());
        for (target, text) in [
            (PlanTarget::from(odd), r#""/d/100%25 %FF""#),
            (url("https://h/a%20b/c"), r#""https://h/a%20b/c/""#),
            (url("ftp://h"), r#""ftp://h/""#),
        ] {
            assert_eq!(serde_json::to_string(&target).unwrap(), text);
            assert_eq!(serde_json::from_str::<PlanTarget>(text).unwrap(), target);
        }
        assert!(serde_json::from_str::<PlanTarget>(r#""here""#).is_err());
    }
}
