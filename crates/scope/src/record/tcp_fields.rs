//! TCP_INFO in a record: names and values.

use std::collections::HashSet;
use std::fmt;
use std::sync::LazyLock;

use longhaul_core::tcp_info::{SIZE, TcpInfo};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// The fields of TCP_INFO that were known, by the kernel's names and in its order.
///
/// A long record has millions of them, so the names are not stored with each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TcpFields(Vec<(&'static str, u64)>);

impl TcpFields {
    /// Returns the field of this name (`tcpi_...`), in the kernel's unit.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Goes through all of them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().copied()
    }

    /// Returns whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&TcpInfo> for TcpFields {
    fn from(info: &TcpInfo) -> Self {
        Self(info.fields().collect())
    }
}

impl Serialize for TcpFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for TcpFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

/// Reads names and values; those that this version does not know are left out.
struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = TcpFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of TCP_INFO's fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TcpFields, A::Error> {
        let mut fields = Vec::with_capacity(NAMES.len());
        while let Some((Name(name), value)) = map.next_entry()? {
            fields.extend(name.map(|name| (name, value)));
        }
        Ok(TcpFields(fields))
    }
}

/// The name of a field, where it is known.
struct Name(Option<&'static str>);

static NAMES: LazyLock<HashSet<&'static str>> =
    LazyLock::new(|| TcpInfo::from_bytes(&[0; SIZE]).fields().map(|(name, _)| name).collect());

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Known;

        impl Visitor<'_> for Known {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                Ok(Name(NAMES.get(name).copied()))
            }
        }

        deserializer.deserialize_str(Known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_every_known_field_and_the_kernels_order() {
        let bytes: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
        let fields = TcpFields::from(&TcpInfo::from_bytes(&bytes));
        let text = serde_json::to_string(&fields).unwrap();
        assert!(text.starts_with(r#"{"tcpi_state":0,"tcpi_ca_state":1,"#), "{text}");
        assert_eq!(serde_json::from_str::<TcpFields>(&text).unwrap(), fields);
        assert_eq!((fields.get("tcpi_probes"), fields.get("tcpi_none")), (Some(3), None));
    }

    #[test]
    fn leaves_out_what_a_later_kernel_tells() {
        let fields: TcpFields = serde_json::from_str(r#"{"tcpi_later":1,"tcpi_rtt":2}"#).unwrap();
        assert_eq!(fields.iter().collect::<Vec<_>>(), [("tcpi_rtt", 2)]);
        assert!(serde_json::from_str::<TcpFields>(r#"{"tcpi_rtt":"2"}"#).is_err());
        assert!(serde_json::from_str::<TcpFields>("[]").is_err());
    }
}
