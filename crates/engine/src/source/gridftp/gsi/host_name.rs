//! Matches a certificate with a host name.

use rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;
use x509_parser::prelude::*;

use super::distinguished_name::one_line;

/// Returns whether a certificate is valid for `host`: by its alternative names, or, only if it has none, by the common
/// name `host/NAME` or `NAME` of old grid certificates.
pub(super) fn is_for(certificate: &CertificateDer<'_>, host: &ServerName<'_>) -> bool {
    let Ok(end_entity) = EndEntityCert::try_from(certificate) else { return false };
    if end_entity.verify_is_valid_for_subject_name(host).is_ok() {
        return true;
    }
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return false };
    let ServerName::DnsName(name) = host else { return false };
    // Unreadable alternative names do not count as absent ones.
    let named = !matches!(parsed.subject_alternative_name(), Ok(None));
    !named && common_name(&parsed).is_some_and(|found| found.eq_ignore_ascii_case(name.as_ref()))
}

/// Returns the subject and the alternative names, for messages.
pub(super) fn shown_names(certificate: &CertificateDer<'_>) -> (String, String) {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return ("a name that cannot be read".to_owned(), String::new());
    };
    let mut names = Vec::new();
    if let Ok(Some(alternatives)) = parsed.subject_alternative_name() {
        for name in &alternatives.value.general_names {
            match name {
                GeneralName::DNSName(name) => names.push(name.escape_default().to_string()),
                GeneralName::IPAddress(bytes) => names.extend(shown_address(bytes)),
                _ => {}
            }
        }
    }
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    (one_line(parsed.subject()), names)
}

/// Returns the last common name, without the service of `host/NAME`.
fn common_name<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a str> {
    let last = certificate.subject().iter_common_name().last()?.as_str().ok()?;
    Some(last.strip_prefix("host/").unwrap_or(last))
}

fn shown_address(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| std::net::Ipv6Addr::from(sixteen).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate(common_name: &str, alternatives: &[&str]) -> CertificateDer<'static> {
        let alternatives: Vec<String> = alternatives.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(alternatives).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn alternative_names_take_precedence_over_the_common_name_and_are_shown() {
        for (common_name, alternatives, host, accepted) in [
            ("x", &["a.example", "192.0.2.1"][..], "a.example", true),
            ("x", &["a.example", "192.0.2.1"], "192.0.2.1", true),
            ("host/b.example", &["a.example"], "b.example", false),
            ("host/b.example", &[], "B.example", true),
            ("b.example", &[], "b.example", true),
            ("ftp/b.example", &[], "b.example", false),
            ("192.0.2.1", &[], "192.0.2.1", false),
            ("host/b.example", &[], "a.example", false),
        ] {
            let (made, name) = (certificate(common_name, alternatives), ServerName::try_from(host).unwrap());
            assert_eq!(is_for(&made, &name), accepted, "{common_name} {host}");
        }
        let made = certificate("x", &["a.example", "192.0.2.1", "2001:db8::1"]);
        let shown = ["/CN=x", " (a.example, 192.0.2.1, 2001:db8::1)"].map(str::to_owned);
        assert_eq!(shown_names(&made), shown.into());
    }
}
