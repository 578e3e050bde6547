use std::net::IpAddr;

use super::eviction::SLOW_REPLY_AGE;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

struct Model {
    admission: ConnectionAdmission,
    now: Duration,
}

impl Model {
    fn new(open: usize, per_client: usize) -> Self {
        let limits = ConnectionLimits { open, per_client, waiting: 8 };
        Self { admission: ConnectionAdmission::new(limits), now: Duration::ZERO }
    }

    fn arrive(&mut self, client: &str) -> (ConnectionId, Admitted) {
        self.now += SECOND;
        self.admission.arrive(key(client), Arc::default(), self.now)
    }

    /// A connection with a reply that has sent so many bytes.
    fn reply(&mut self, client: &str, sent: u64) -> ConnectionId {
        let counter = Arc::new(AtomicU64::new(0));
        let (id, admitted) = self.admission.arrive(key(client), Arc::clone(&counter), self.now);
        assert!(matches!(admitted, Admitted::Now { .. }), "{client}: {admitted:?}");
        assert!(self.admission.replying(id, self.now));
        counter.store(sent, Ordering::Relaxed);
        id
    }
}

fn key(client: &str) -> ClientKey {
    client.parse::<IpAddr>().unwrap().into()
}

#[test]
fn ipv6_network_is_one_client() {
    assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
    assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
    assert_ne!(key("127.0.0.1"), key("127.0.0.2"));
    assert_eq!(key("127.0.0.1"), key("::ffff:127.0.0.1"));
}

#[test]
fn slow_reply_of_the_largest_holder_ends_before_others() {
    let mut model = Model::new(4, 4);
    model.reply("10.0.0.1", 0);
    let slow = [9_000, 2_000, 5_000].map(|sent| model.reply("10.0.0.2", sent));
    assert_eq!(model.arrive("10.0.0.3").1, Admitted::Now { evicted: Some(slow[1]) });
    // The clients hold 1, 2 and 1 connections: no further eviction makes that fairer.
    assert_eq!(model.arrive("10.0.0.3").1, Admitted::Now { evicted: Some(4) }, "its own idle one");
    assert_eq!(model.arrive("10.0.0.2").1, Admitted::Later);
    let mut model = Model::new(3, 3);
    let slow = model.reply("10.0.0.2", 10_000);
    model.reply("10.0.0.2", 1 << 30);
    model.arrive("10.0.0.1");
    model.now += SLOW_REPLY_AGE;
    assert_eq!(model.arrive("10.0.0.3").1, Admitted::Now { evicted: Some(slow) });
}

#[test]
fn idle_connection_ends_before_a_reply() {
    let mut model = Model::new(3, 3);
    model.reply("10.0.0.2", 0);
    let idle = model.arrive("10.0.0.2").0;
    model.reply("10.0.0.2", 0);
    assert_eq!(model.arrive("10.0.0.1").1, Admitted::Now { evicted: Some(idle) });
    let mut model = Model::new(4, 4);
    model.reply("10.0.0.2", 1 << 30);
    model.reply("10.0.0.2", 1 << 30);
    let idle = model.arrive("10.0.0.1").0;
    model.arrive("10.0.0.3");
    assert_eq!(model.arrive("10.0.0.4").1, Admitted::Now { evicted: Some(idle) });
}

#[test]
fn upload_is_not_evicted_and_keeps_no_idle_connection_of_others_open() {
    let mut model = Model::new(3, 3);
    for _ in 0..2 {
        let upload = model.arrive("10.0.0.2").0;
        model.admission.receiving(upload);
    }
    let idle = model.arrive("10.0.0.1").0;
    assert_eq!(model.arrive("10.0.0.3").1, Admitted::Now { evicted: Some(idle) });
    let mut model = Model::new(2, 2);
    let upload = model.arrive("10.0.0.2").0;
    model.admission.receiving(upload);
    let reply = model.reply("10.0.0.2", 1 << 30);
    assert_eq!(model.arrive("10.0.0.1").1, Admitted::Now { evicted: Some(reply) });
}

#[test]
fn client_at_its_cap_takes_nothing_from_others() {
    let mut model = Model::new(10, 2);
    let idle = model.arrive("10.0.0.1").0;
    model.reply("10.0.0.2", 0);
    let own = model.arrive("10.0.0.2").0;
    assert_eq!(model.arrive("10.0.0.2").1, Admitted::Now { evicted: Some(own) });
    assert!(model.admission.replying(3, model.now));
    assert_eq!(model.arrive("10.0.0.2").1, Admitted::Later);
    assert_eq!(model.arrive("10.0.0.2").1, Admitted::Later);
    assert_eq!(model.arrive("10.0.0.2").1, Admitted::Never);
    assert_eq!(model.arrive("10.0.0.3").1, Admitted::Now { evicted: None });
    model.admission.close(idle);
    assert_eq!(model.admission.next(model.now), None);
    model.admission.close(3);
    assert_eq!(model.admission.next(model.now), Some((4, None)));
}

#[test]
fn waiting_connection_gets_the_slot_of_one_that_becomes_idle() {
    let mut model = Model::new(2, 2);
    let first = model.reply("10.0.0.1", 0);
    model.reply("10.0.0.1", 0);
    let (third, admitted) = model.arrive("10.0.0.1");
    assert_eq!((admitted, model.admission.next(model.now)), (Admitted::Later, None));
    model.admission.idle(first);
    assert_eq!(model.admission.next(model.now), Some((third, Some(first))));
    assert!(!model.admission.replying(first, model.now), "it has no slot any more");
    model.admission.close(first);
    assert_eq!(model.admission.next(model.now), None);
}

#[test]
fn tables_are_empty_once_all_have_closed() {
    let mut model = Model::new(3, 3);
    for client in 0..20 {
        let (id, _) = model.arrive(&format!("10.0.0.{}", client % 4));
        if client % 3 == 0 {
            model.admission.replying(id, model.now);
        }
    }
    (0..20).for_each(|id| model.admission.close(id));
    let ConnectionAdmission { connections, clients, by_count, idle, waiting, .. } = model.admission;
    assert!(connections.is_empty() && clients.is_empty() && by_count.is_empty() && idle.is_empty());
    assert!(waiting.is_empty());
}
