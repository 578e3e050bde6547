//! The receive window that an endpoint announces.

use longhaul_core::units::Bytes;

use super::packet::Segment;

/// The windows of one endpoint's segments.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AnnouncedWindow {
    /// Window scale shift that this endpoint announced; `None` if its SYN was not captured.
    scale: Option<u8>,
    /// Whether an endpoint's SYN lacks the option: then no window is scaled (RFC 7323, section
    /// 1.3).
    pub(super) is_unscaled: bool,
    /// The last and the largest window.
    last: Option<Bytes>,
    largest: Bytes,
}

impl AnnouncedWindow {
    /// Adds the window of a segment that this endpoint sent.
    pub(super) fn add(&mut self, segment: &Segment) {
        if segment.syn {
            self.scale = Some(segment.options.scale.filter(|_| !self.is_unscaled).unwrap_or(0));
        }
        // The window field of a SYN is never scaled (RFC 7323, section 2.2).
        let shift = if segment.syn { Some(0) } else { self.scale };
        if let Some(shift) = shift.filter(|_| !segment.reset) {
            let window = Bytes::new(u64::from(segment.window) << shift);
            self.last = Some(window);
            self.largest = self.largest.max(window);
        }
    }

    /// Notes that an endpoint has not offered window scaling.
    pub(super) fn refuse_scale(&mut self) {
        (self.is_unscaled, self.scale) = (true, Some(0));
    }

    /// Returns whether the window scale is known.
    pub(super) fn has_scale(&self) -> bool {
        self.scale.is_some()
    }

    /// Returns the last window, where its scale is known.
    pub(super) fn get(&self) -> Option<Bytes> {
        self.last.filter(|_| self.has_scale())
    }

    /// Returns by how much unread data in the receiver's socket reduce the window.
    pub(super) fn unread(&self) -> Bytes {
        self.get().map_or(Bytes::ZERO, |window| self.largest.saturating_sub(window))
    }
}
