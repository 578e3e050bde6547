//! The limit of open files, divided among connections and uploads, so that none of them fails for
//! lack of a descriptor.

use longhaul_core::initial_window::InitialWindow;

use crate::Config;
use crate::measurement::UDP_PORTS;
use crate::server::METRICS_CONNECTIONS;

/// Descriptors of the process itself: standard streams, event loop, signals, the root, the mount
/// table, the log, a record.
const OF_PROCESS: usize = 32;

/// Descriptors of one connection: its socket, and three more. A listing has a directory, its
/// entries or its index page, and the target of a link open; a file takes two while it is opened;
/// an upload over TLS takes a socket pair and a second descriptor of its socket.
const OF_CONNECTION: usize = 4;

/// Descriptors of one upload, of which 13 to 14 were seen (26 November 2026): its directory; its
/// file, which the partial file, the writer (twice), the journal, the hasher and the page counter
/// have open; the processor times of five threads; its connection's socket twice, which may close
/// before the last sync; a journal being written, and a file being read back.
const OF_UPLOAD: usize = 16;

/// Connections that wait for a slot may take a sixteenth of the descriptors, and those that are
/// refused half as many.
const WAITING_DIVISOR: usize = 16;

/// Uploads may take a third of the descriptors.
const UPLOADS_DIVISOR: usize = 3;

/// A quarter of few uploads are only for file systems without one: where some hang, one place must
/// be left to another.
const FIRST_UPLOADS_DIVISOR: usize = 4;

impl Config {
    /// Lowers the limits of connections and of uploads to what `files` open files allow;
    /// `is_observed` is whether [`crate::Server::observe`] is to be called.
    pub fn fit_open_files(&mut self, files: u64, is_observed: bool) {
        let files = usize::try_from(files).unwrap_or(usize::MAX);
        self.limits.connections.waiting =
            self.limits.connections.waiting.min((files / WAITING_DIVISOR).max(1));
        let rest = files.saturating_sub(self.fixed_descriptors());
        let uploads = if self.access.writable {
            let limits = &mut self.limits.uploads;
            let most = (rest / UPLOADS_DIVISOR / OF_UPLOAD).max(1);
            limits.first = limits.first.min(most / FIRST_UPLOADS_DIVISOR);
            limits.in_all = limits.in_all.min(most - limits.first);
            // A file system that hangs leaves places to others.
            limits.per_disk = limits.per_disk.min(limits.in_all.div_ceil(2));
            (limits.in_all + limits.first) * OF_UPLOAD
        } else {
            0
        };
        // A second descriptor of the socket, where it is observed, and where the initial window is
        // paced.
        let is_watched = is_observed || self.metrics.is_some();
        let is_window_paced = self.pacing.initial_window != InitialWindow::Off;
        let of_connection = OF_CONNECTION + usize::from(is_watched) + usize::from(is_window_paced);
        let most = (rest.saturating_sub(uploads) / of_connection).max(1);
        let limits = &mut self.limits.connections;
        limits.open = limits.open.min(most);
        limits.per_client = limits.per_client.min(limits.open);
    }

    /// Returns the descriptors that depend on no limit: those of listening sockets, and of
    /// connections without a slot.
    fn fixed_descriptors(&self) -> usize {
        let without_slot = self.limits.connections.waiting + self.limits.connections.refusals();
        let listening = self.listen.len() + without_slot;
        let metrics = match self.metrics {
            None => 0,
            Some(_) => 1 + without_slot + METRICS_CONNECTIONS,
        };
        let measurement = if self.measure.is_some() { UDP_PORTS } else { 0 };
        OF_PROCESS + listening + metrics + measurement
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MeasureConfig;

    fn fitted(files: u64, change: impl FnOnce(&mut Config)) -> Config {
        let mut config = Config::new("/", ([127, 0, 0, 1], 0).into());
        change(&mut config);
        config.fit_open_files(files, false);
        config
    }

    /// The most descriptors that a server of this configuration opens.
    fn needed(config: &Config, of_connection: usize) -> usize {
        let limits = &config.limits;
        let uploads = if config.access.writable { limits.uploads.in_all + limits.uploads.first } else { 0 };
        config.fixed_descriptors() + uploads * OF_UPLOAD + limits.connections.open * of_connection
    }

    #[test]
    fn connections_and_uploads_fit_into_a_low_limit_and_a_high_one_lowers_nothing() {
        for files in [300, 1024, 4096, 20_000] {
            let writable = fitted(files, |config| config.access.writable = true);
            assert!(needed(&writable, OF_CONNECTION) <= files as usize, "{files}: {:?}", writable.limits);
            let limits = writable.limits.uploads;
            // One token's leave a place to another.
            assert!((2..limits.in_all).contains(&limits.per_disk), "{limits:?}");
            let watched = fitted(files, |config| {
                config.access.writable = true;
                config.metrics = Some(([127, 0, 0, 1], 0).into());
                config.measure = Some(MeasureConfig::default());
                config.pacing.initial_window = InitialWindow::Auto;
            });
            assert!(needed(&watched, OF_CONNECTION + 2) <= files as usize, "{files}: {:?}", watched.limits);
            assert!(fitted(files, |_| {}).limits.connections.open >= writable.limits.connections.open);
        }
        let low = fitted(100, |config| config.access.writable = true);
        assert!(needed(&low, OF_CONNECTION) <= 100 && low.limits.connections.open >= 8, "{:?}", low.limits);
        let least = fitted(1, |config| config.access.writable = true).limits;
        let uploads = (least.uploads.per_disk, least.uploads.in_all, least.uploads.first);
        assert_eq!((least.connections.open, uploads), (1, (1, 1, 0)));
        for files in [65_536, u64::MAX] {
            let limits = fitted(files, |config| config.access.writable = true).limits;
            let (connections, uploads) = (limits.connections, limits.uploads);
            assert_eq!((connections.open, connections.per_client), (10_000, 5_000));
            assert_eq!((uploads.per_disk, uploads.in_all, uploads.first), (32, 256, 64));
        }
    }
}
