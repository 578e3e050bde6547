//! Names of certificates on one line, in the format of OpenSSL and grid-mapfiles:
//! `/C=CH/O=Grid/CN=Ann User`.

use std::fmt::Write;

use x509_parser::prelude::*;

/// Attribute types, and their short names in OpenSSL.
const SHORT_NAMES: [(&str, &str); 13] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.42", "GN"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// Formats a name on one line; bytes outside of printable ASCII become `\xHH`.
pub(super) fn one_line(name: &X509Name<'_>) -> String {
    let mut line = String::new();
    for attribute in name.iter_attributes() {
        let oid = attribute.attr_type().to_id_string();
        let short =
            SHORT_NAMES.iter().find(|(known, _)| *known == oid).map_or(oid.as_str(), |(_, short)| short);
        let _ = write!(line, "/{short}=");
        for byte in attribute.as_slice() {
            // Writing to a String cannot fail.
            let _ = match byte {
                b' '..=b'~' => write!(line, "{}", char::from(*byte)),
                byte => write!(line, "\\x{byte:02X}"),
            };
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    #[test]
    fn writes_names_as_openssl_does() {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in [
            (DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 25]), "ch"),
            (DnType::OrganizationName, "Grid é"),
            (DnType::CommonName, "host/a.example"),
            (DnType::CustomDnType(vec![1, 2, 3]), "x"),
        ] {
            params.distinguished_name.push(kind, value);
        }
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let (_, read) = X509Certificate::from_der(made.der()).unwrap();
        assert_eq!(one_line(read.subject()), "/DC=ch/O=Grid \\xC3\\xA9/CN=host/a.example/1.2.3=x");
    }
}
