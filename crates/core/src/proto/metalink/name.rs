//! The name of a file in a Metalink: a relative path.

use std::fmt;

use crate::proto::Malformed;
use crate::proto::http::FileName;

/// The largest number of components of a name: PATH_MAX (4096 bytes) has room for 20 of the
/// longest.
const MAX_COMPONENTS: usize = 20;

/// A relative path of safe components, at least one (RFC 5854, section 4.1.2.1).
///
/// The path never leaves the directory in which it is resolved. `Display` separates components by
/// `/`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MetalinkName(Vec<FileName>);

impl MetalinkName {
    /// Parses a path with `/` between components.
    ///
    /// A component that is hidden or looks like an option gets the prefix `_`, as in
    /// [`FileName::sanitise`].
    ///
    /// # Errors
    /// [`Malformed`] for an absolute path, an empty component, `.`, `..`, a backslash, a control
    /// character or one that changes the direction of text, other components that
    /// [`FileName::sanitise`] would change, and more than 20 components.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let component = |part: &str| {
            let name = FileName::sanitise(part)?;
            let written = name.as_str().strip_prefix('_').filter(|_| part.starts_with(['.', '-']));
            (written.unwrap_or(name.as_str()) == part).then_some(name)
        };
        let components: Option<Vec<_>> = text.split('/').take(MAX_COMPONENTS + 1).map(component).collect();
        let fitting = components.filter(|components| components.len() <= MAX_COMPONENTS);
        fitting.map(Self).ok_or_else(|| {
            let text: String = text.chars().take(200).collect();
            let text = text.escape_debug();
            Malformed::new(format!("the metalink's file name '{text}' is not a relative path of plain names"))
        })
    }

    /// Returns the components from the outermost directory to the file.
    pub fn components(&self) -> &[FileName] {
        &self.0
    }
}

impl fmt::Display for MetalinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, component) in self.0.iter().enumerate() {
            write!(f, "{}{component}", if at > 0 { "/" } else { "" })?;
        }
        Ok(())
    }
}
