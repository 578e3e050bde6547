//! Columns of rows and parameters of statements, the same for both databases: those of rusqlite.

use std::fmt;

use bytes::BytesMut;
use rusqlite::types::{FromSql as FromSqlite, ToSqlOutput, ValueRef};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::StoreError;

/// Returns the stored form of a number. The databases have no larger integer; only a false size
/// from a server and a rate limit without effect are larger.
pub(super) fn clamped(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

type AnyError = Box<dyn std::error::Error + Sync + Send>;

/// A parameter of a statement for PostgreSQL.
#[derive(Debug)]
pub(super) struct FarmParameter<'a>(pub(super) rusqlite::Result<ToSqlOutput<'a>>);

impl ToSql for FarmParameter<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, AnyError> {
        let value = match &self.0 {
            Ok(ToSqlOutput::Borrowed(value)) => *value,
            Ok(ToSqlOutput::Owned(value)) => value.into(),
            other => return Err(format!("no parameter: {other:?}").into()),
        };
        match value {
            ValueRef::Null => Ok(IsNull::Yes),
            // The type of a parameter is that of the expression it stands in.
            ValueRef::Integer(value) if *kind == Type::INT4 => i32::try_from(value)?.to_sql(kind, out),
            ValueRef::Integer(value) => value.to_sql(kind, out),
            ValueRef::Real(value) => value.to_sql(kind, out),
            ValueRef::Text(value) | ValueRef::Blob(value) => value.to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A column of PostgreSQL.
struct FarmColumn<'a>(ValueRef<'a>);

impl<'a> FromSql<'a> for FarmColumn<'a> {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, AnyError> {
        Ok(Self(match *kind {
            Type::INT8 => ValueRef::Integer(i64::from_sql(kind, raw)?),
            Type::INT4 => ValueRef::Integer(i32::from_sql(kind, raw)?.into()),
            Type::BYTEA => ValueRef::Blob(raw),
            _ => ValueRef::Text(raw),
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Self, AnyError> {
        Ok(Self(ValueRef::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A row of an answer, whose columns are read by their names.
pub(super) enum ResultRow<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    Farm(&'a tokio_postgres::Row),
}

impl ResultRow<'_> {
    /// Reads a column by its name, or the only one of an answer by its index.
    pub(super) fn get<T: FromSqlite>(
        &self,
        column: impl rusqlite::RowIndex + tokio_postgres::row::RowIndex + fmt::Display + Copy,
    ) -> Result<T, StoreError> {
        let value = match self {
            Self::Sqlite(row) => row.get_ref(column)?,
            Self::Farm(row) => {
                let value = row.try_get(column).map(|FarmColumn(value)| value);
                value.map_err(|error| StoreError::unreadable(column, error))?
            }
        };
        T::column_result(value).map_err(|error| StoreError::unreadable(column, error))
    }
}
