//! Access control: tokens, their rights and directories, credentials in clear.

mod authorisation;
mod failed_logins;
mod token;
mod token_directory;
mod token_file;

pub use authorisation::Tokens;
pub(crate) use authorisation::{Access, Grant, RequestOrigin, Right};
pub use token::Token;
pub use token_file::WIDE_MODE;
