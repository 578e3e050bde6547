//! Operations on files that may not exist.

use std::io;

/// Returns the result of an operation on a file; `None` where there is no such file.
///
/// # Errors
/// Any other error of the operation.
pub fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}
