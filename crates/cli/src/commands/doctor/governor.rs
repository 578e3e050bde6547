//! The frequency governors of all processors, as one setting: one name where they have the same,
//! else one for each.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The processors' files.
pub(super) struct Governors {
    directory: PathBuf,
}

impl Governors {
    pub(super) fn of_this_host() -> Self {
        Self { directory: PathBuf::from("/sys/devices/system/cpu") }
    }

    /// Reads the governors in the order of the processors.
    pub(super) fn read(&self) -> io::Result<String> {
        let read = |file: &PathBuf| Ok(fs::read_to_string(file)?.trim().to_owned());
        let mut names = self.files()?.iter().map(read).collect::<io::Result<Vec<String>>>()?;
        if names.iter().all(|name| *name == names[0]) {
            names.truncate(1);
        }
        Ok(names.join(" "))
    }

    /// Says whether all can be written, without writing them.
    pub(super) fn check_writable(&self) -> io::Result<()> {
        self.files()?.iter().try_for_each(|file| File::options().write(true).open(file).map(drop))
    }

    /// Writes one governor to all processors, or to each its own; one that refuses it does not keep
    /// it from the others.
    pub(super) fn write(&self, value: &str) -> io::Result<()> {
        let (files, names) = (self.files()?, value.split(' ').collect::<Vec<_>>());
        if names.len() != 1 && names.len() != files.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "these are not the governors of each processor",
            ));
        }
        let mut result = Ok(());
        for (file, name) in files.iter().zip(names.iter().cycle()) {
            result = result.and(fs::write(file, name));
        }
        result
    }

    /// Returns the files of the processors that have a governor; an offline one has none.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let number = |path: &Path| path.file_name()?.to_str()?.strip_prefix("cpu")?.parse::<u32>().ok();
        let mut cpus: Vec<(u32, PathBuf)> = fs::read_dir(&self.directory)?
            .flatten()
            .filter_map(|entry| Some((number(&entry.path())?, entry.path().join("cpufreq/scaling_governor"))))
            .filter(|(_, file)| file.exists())
            .collect();
        cpus.sort();
        if cpus.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no processor has a governor"));
        }
        Ok(cpus.into_iter().map(|(_, file)| file).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As sysfs has them; the machines of the tests have none.
    fn governors(names: &[&str]) -> (tempfile::TempDir, Governors) {
        let dir = tempfile::tempdir().unwrap();
        for (cpu, name) in names.iter().enumerate() {
            let directory = dir.path().join(format!("cpu{cpu}/cpufreq"));
            fs::create_dir_all(&directory).unwrap();
            if !name.is_empty() {
                fs::write(directory.join("scaling_governor"), format!("{name}\n")).unwrap();
            }
        }
        fs::create_dir_all(dir.path().join("cpufreq")).unwrap();
        let governors = Governors { directory: dir.path().to_owned() };
        (dir, governors)
    }

    #[test]
    fn one_governor_is_written_to_all_and_the_former_ones_to_each() {
        let mut names = vec!["powersave"; 11];
        names[2] = "schedutil";
        names.push("");
        let (_dir, host) = governors(&names);
        let before = host.read().unwrap();
        assert_eq!(before, names[..11].join(" "), "cpu10 is not the third");
        host.check_writable().unwrap();
        host.write("performance").unwrap();
        assert_eq!(host.read().unwrap(), "performance");
        host.write(&before).unwrap();
        assert!(host.write("powersave performance").is_err());
        assert_eq!(host.read().unwrap(), before, "nothing is written of a list that does not fit");
    }

    #[test]
    fn processor_without_a_governor_or_that_refuses_is_an_error() {
        let (dir, host) = governors(&["powersave", "", "powersave"]);
        fs::create_dir_all(dir.path().join("cpu1/cpufreq/scaling_governor")).unwrap();
        assert_eq!(host.write("performance").unwrap_err().kind(), io::ErrorKind::IsADirectory);
        for cpu in ["cpu0", "cpu2"] {
            let file = dir.path().join(cpu).join("cpufreq/scaling_governor");
            assert_eq!(fs::read_to_string(file).unwrap(), "performance");
        }
        let (_dir, host) = governors(&["", ""]);
        for error in
            [host.read().unwrap_err(), host.check_writable().unwrap_err(), host.write("x").unwrap_err()]
        {
            assert_eq!(error.to_string(), "no processor has a governor");
        }
    }
}
