//! The files of a plan's units, and of their index, while they are written.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::error::FarmError;
use crate::plan::{INDEX, UNITS, entry_of};
use crate::unit::{FilePart, Unit};

/// The units that are written, and their index.
#[derive(Debug)]
pub(super) struct UnitFiles {
    units: BufWriter<File>,
    index: BufWriter<File>,
    index_digest: blake3::Hasher,
}

impl UnitFiles {
    pub(super) fn create(directory: &Path) -> Result<Self, FarmError> {
        let create = |name| {
            let at = directory.join(name);
            File::create_new(&at).map(BufWriter::new).map_err(FarmError::io("create", &at))
        };
        Ok(Self { units: create(UNITS)?, index: create(INDEX)?, index_digest: blake3::Hasher::new() })
    }

    /// Makes the units readable for this user alone.
    pub(super) fn make_private(&self) -> io::Result<()> {
        self.units.get_ref().set_permissions(Permissions::from_mode(0o600))
    }

    /// Appends a unit, whose line begins at `offset`; returns the length of the line.
    pub(super) fn append(&mut self, unit: &Unit, offset: u64) -> io::Result<u64> {
        let mut line = serde_json::to_vec(unit)?;
        line.push(b'\n');
        let ranges = match unit.part {
            Some(FilePart::Join { ranges }) => ranges,
            _ => 0,
        };
        let entry = entry_of(offset, ranges, &line);
        self.units.write_all(&line)?;
        self.index.write_all(&entry)?;
        self.index_digest.update(&entry);
        Ok(line.len() as u64)
    }

    /// Returns the digest of the index.
    pub(super) fn index_digest(&self) -> String {
        self.index_digest.finalize().to_hex().to_string()
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        for file in [&mut self.units, &mut self.index] {
            file.flush()?;
            file.get_ref().sync_all()?;
        }
        Ok(())
    }
}
