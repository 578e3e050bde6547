//! The features of a server, from its reply to FEAT (RFC 2389).

use std::collections::BTreeMap;

use super::{Reply, checksum_algorithm_name};
use crate::checksum::Algorithm;

/// The features of a server; empty if it does not support FEAT.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Features {
    /// Parameters by upper-case keyword; a keyword may be listed several times.
    listed: BTreeMap<String, Vec<String>>,
}

impl Features {
    /// Parses the reply to FEAT; a code other than 211 lists no features.
    pub fn parse(reply: &Reply) -> Self {
        let mut listed: BTreeMap<String, Vec<String>> = BTreeMap::new();
        // The first and the last line are free text.
        let last = reply.lines.len().saturating_sub(1);
        let lines = reply.lines.get(1..last).filter(|_| reply.code == 211).unwrap_or_default();
        for line in lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
            let (keyword, parameters) = line.split_once(' ').unwrap_or((line, ""));
            listed.entry(keyword.to_ascii_uppercase()).or_default().push(parameters.trim().to_owned());
        }
        Self { listed }
    }

    /// Returns whether a keyword, such as "MFMT", is listed; case-insensitive.
    pub fn lists(&self, keyword: &str) -> bool {
        self.listed.contains_key(&keyword.to_ascii_uppercase())
    }

    /// Returns whether several data connections can carry one file (MODE E with OPTS RETR
    /// Parallelism).
    pub fn extended_mode(&self) -> bool {
        self.lists("PARALLEL")
    }

    /// Returns whether a range of a file can be requested (ERET).
    pub fn partial_retrieve(&self) -> bool {
        self.lists("ERET")
    }

    /// Returns whether a file can be stored from an offset (ESTO).
    pub fn adjusted_store(&self) -> bool {
        self.lists("ESTO")
    }

    /// Returns whether MODE S transfers can begin at an offset (REST STREAM, RFC 3659).
    pub fn restarts_streams(&self) -> bool {
        self.words("REST").any(|word| word.eq_ignore_ascii_case("STREAM"))
    }

    /// Returns whether a security mechanism is listed, such as "TLS" or "GSSAPI".
    pub fn authenticates_by(&self, mechanism: &str) -> bool {
        self.words("AUTH").any(|word| word.eq_ignore_ascii_case(mechanism))
    }

    /// Returns whether CKSM supports an algorithm.
    ///
    /// Globus lists `CKSM MD5:10;SHA256:11;`, with an order of preference. A list without
    /// algorithms implies MD5, the only algorithm of GFD.47.
    pub fn checksum(&self, algorithm: Algorithm) -> bool {
        let Some(name) = checksum_algorithm_name(algorithm) else { return false };
        let mut named = self.words("CKSM").filter(|word| !word.is_empty()).peekable();
        match named.peek() {
            None => self.lists("CKSM") && algorithm == Algorithm::Md5,
            Some(_) => {
                named.any(|word| word.split(':').next().is_some_and(|word| word.eq_ignore_ascii_case(name)))
            }
        }
    }

    /// Returns the best supported algorithm of CKSM: a collision-resistant one, preferably with CPU
    /// instructions.
    pub fn best_checksum(&self) -> Option<Algorithm> {
        let preferred = [Algorithm::Sha256, Algorithm::Sha512, Algorithm::Sha1, Algorithm::Md5];
        preferred.into_iter().find(|algorithm| self.checksum(*algorithm))
    }

    /// Splits a keyword's parameters at spaces, semicolons and commas.
    fn words(&self, keyword: &str) -> impl Iterator<Item = &str> {
        let parameters = self.listed.get(keyword).into_iter().flatten();
        parameters.flat_map(|parameters| parameters.split([' ', ';', ','])).filter(|word| !word.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a reply to FEAT; a bar is between the lines.
    fn features(lines: &str) -> Features {
        let lines = format!("Extensions supported|{lines}|End.");
        Features::parse(&Reply::of(211, &lines.split('|').collect::<Vec<_>>()))
    }

    #[test]
    fn features_of_globus_are_parsed() {
        let globus = features(
            " CKSM MD5:10;ADLER32:10;SHA1:10;SHA256:11;SHA512:12;| DCSC P,D| MFMT| UTF8| DCAU| PARALLEL| SIZE|\
            \x20MLST Type*;Size*;Modify*;Perm*;Charset;Unique*;X.count;| ERET| ESTO| SPAS| SPOR| REST STREAM|\
            \x20MDTM| PASV AllowDelayed;",
        );
        assert!(globus.extended_mode() && globus.partial_retrieve() && globus.adjusted_store());
        assert!(globus.restarts_streams() && globus.lists("mfmt") && !globus.authenticates_by("TLS"));
        assert!(globus.checksum(Algorithm::Md5) && globus.checksum(Algorithm::Sha512));
        assert!(!globus.checksum(Algorithm::Blake3));
        assert_eq!(globus.best_checksum(), Some(Algorithm::Sha256));
        let plain = features(" CKSM");
        assert_eq!((plain.best_checksum(), features(" SIZE").best_checksum()), (Some(Algorithm::Md5), None));
        assert!(plain.checksum(Algorithm::Md5) && !plain.checksum(Algorithm::Sha1));
    }

    #[test]
    fn plain_ftp_servers_have_few_features_or_none() {
        let vsftpd = features(" AUTH TLS| EPRT| EPSV| MDTM| PASV| PBSZ| PROT| REST STREAM| SIZE| TVFS");
        assert!(vsftpd.authenticates_by("tls") && vsftpd.restarts_streams() && !vsftpd.extended_mode());
        assert!(!vsftpd.checksum(Algorithm::Md5));
        let refused = Reply::of(500, &["a", " PARALLEL", "b"]);
        assert_eq!(Features::parse(&refused), Features::default());
        assert!(!Features::parse(&Reply::of(211, &["No features"])).extended_mode());
    }
}
