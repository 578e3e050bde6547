//! Values of parameters and columns, the same for both databases.

use bytes::BytesMut;
use rusqlite::types::{FromSql as FromSqlite, FromSqlResult, ToSqlOutput, ValueRef};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::StoreError;

/// A value of a parameter or a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        // The databases have no larger integer. Only a false size from a server and a rate limit
        // without effect are larger.
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(value.into())
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Self {
        Self::Blob(value.to_owned())
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<'a> From<&'a Value> for ValueRef<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Int(value) => Self::Integer(*value),
            Value::Text(value) => Self::Text(value.as_bytes()),
            Value::Blob(value) => Self::Blob(value),
        }
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.into()))
    }
}

impl FromSqlite for Value {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(match value {
            ValueRef::Null => Self::Null,
            ValueRef::Blob(value) => Self::Blob(value.to_owned()),
            ValueRef::Text(_) => Self::Text(value.as_str()?.to_owned()),
            ValueRef::Integer(_) | ValueRef::Real(_) => Self::Int(value.as_i64()?),
        })
    }
}

type AnyError = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, AnyError> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            // The type of a parameter is that of the expression it stands in.
            Self::Int(value) if *kind == Type::INT4 => i32::try_from(*value)?.to_sql(kind, out),
            Self::Int(value) => value.to_sql(kind, out),
            Self::Text(value) => value.to_sql(kind, out),
            Self::Blob(value) => value.to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, AnyError> {
        match *kind {
            Type::INT8 => i64::from_sql(kind, raw).map(Self::Int),
            Type::INT4 => i32::from_sql(kind, raw).map(|value| Self::Int(value.into())),
            Type::BYTEA => Ok(Self::Blob(raw.to_owned())),
            _ => String::from_sql(kind, raw).map(Self::Text),
        }
    }

    fn from_sql_null(_: &Type) -> Result<Self, AnyError> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A row of an answer; its columns are taken in their order.
#[derive(Debug)]
pub(super) struct Record(std::vec::IntoIter<Value>);

impl Record {
    pub(super) fn new(values: Vec<Value>) -> Self {
        Self(values.into_iter())
    }

    /// Takes the next column.
    pub(super) fn take<T: FromSqlite>(&mut self) -> Result<T, StoreError> {
        let value = self.0.next().unwrap_or(Value::Null);
        let taken = T::column_result((&value).into());
        taken.map_err(|_| StoreError::Unreadable("a column has another type".to_owned()))
    }
}

/// Makes the values of a statement's parameters.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        &[$($crate::database::value::Value::from($value)),*]
    };
}
pub(super) use values;
