//! GSI: authentication with X.509 certificates on a GridFTP control connection (RFC 2228, GFD.20), by rustls.
//!
//! ```text
//! Credentials::find   proxy or user certificate        Trust::load   authorities, signing policies, revocation lists
//!          '----------------.   .---------------------------------------'
//!                        authenticate            AUTH GSSAPI, then ADAT: TLS records in base64, then '0': no delegation
//!                              '--> ControlSecurity   ENC <record>  ->   <- 632 <record>
//! ```
//!
//! The tokens of Globus' GSSAPI are the records of a TLS connection, so that no GSS library is needed.

mod authenticate;
mod control_security;
mod credentials;
mod data_credential;
mod distinguished_name;
mod error;
mod host_name;
mod server_verifier;
mod trust;

pub(crate) use authenticate::{AuthenticateError, authenticate};
pub(crate) use control_security::ControlSecurity;
pub(crate) use credentials::{CredentialPlaces, Credentials};
pub(crate) use data_credential::DataCredential;
pub(crate) use error::GsiError;
pub(crate) use trust::Trust;
