//! The fields of TCP_INFO that a reader keeps.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// The kept fields: all that figures need.
///
/// A complete TCP_INFO takes 284 bytes per connection and sample, and a line of a damaged record may name thousands.
const KEPT: [&str; 3] = ["tcpi_bytes_acked", "tcpi_bytes_received", "tcpi_rcv_mss"];

/// Fields of TCP_INFO by the kernel's names: `tcpi_bytes_acked`, `tcpi_bytes_received` and `tcpi_rcv_mss`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TcpFields(Vec<(&'static str, u64)>);

impl TcpFields {
    /// Returns a field by name (`tcpi_...`), in the kernel's unit.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Iterates over the fields.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().copied()
    }
}

impl<'de> Deserialize<'de> for TcpFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

/// Deserialises names and values; keeps those in [`KEPT`], each once.
struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = TcpFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of TCP_INFO's fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TcpFields, A::Error> {
        let mut fields = Vec::new();
        while let Some((Name(name), value)) = map.next_entry()? {
            if let Some(name) = name {
                fields.retain(|(before, _)| *before != name);
                fields.reserve_exact(1);
                fields.push((name, value));
            }
        }
        Ok(TcpFields(fields))
    }
}

/// A field's name; `None` if the field is not kept.
struct Name(Option<&'static str>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Known;

        impl Visitor<'_> for Known {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                Ok(Name(KEPT.into_iter().find(|kept| *kept == name)))
            }
        }

        deserializer.deserialize_str(Known)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::tcp_info::{SIZE, TcpInfo};

    use super::*;

    #[test]
    fn keeps_few_of_the_fields_that_were_written() {
        let bytes: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
        let written = TcpInfo::from_bytes(&bytes);
        let read: TcpFields = serde_json::from_str(&serde_json::to_string(&written).unwrap()).unwrap();
        assert_eq!(read.iter().count(), KEPT.len());
        let value = |name: &str| written.fields().find(|(known, _)| *known == name).map(|(_, value)| value);
        assert!(KEPT.iter().all(|name| read.get(name).is_some() && read.get(name) == value(name)));
        assert_eq!(read.get("tcpi_probes"), None);
    }

    #[test]
    fn what_is_read_stays_small_and_is_refused_unless_numeric() {
        let fields = |text: &str| serde_json::from_str::<TcpFields>(text);
        assert_eq!(fields("{}").unwrap().0.capacity(), 0);
        let one = r#""tcpi_bytes_acked":1,"tcpi_rtt":5,"tcpi_later":7,"#;
        let many = fields(&format!(r#"{{{}"tcpi_bytes_acked":2}}"#, one.repeat(1000))).unwrap();
        assert_eq!(many.iter().collect::<Vec<_>>(), [("tcpi_bytes_acked", 2)]);
        assert!(many.0.capacity() <= KEPT.len(), "{}", many.0.capacity());
        assert!(fields(r#"{"tcpi_rtt":"2"}"#).is_err() && fields("[]").is_err());
    }
}
