//! Calls of aria2's clients.

use longhaul_core::proto::aria2_rpc::{Aria2Options, Call, Incoming, Params, authorize};

/// The secret that the corpus holds.
const SECRET: &str = "s";

/// Reads calls, those of a multicall too, as a client that has the secret; options are written anew
/// and read.
pub fn aria2_rpc(bytes: &[u8]) {
    let calls = match Incoming::parse(bytes) {
        Ok(Incoming::One(call)) => vec![Ok(call)],
        Ok(Incoming::Batch(calls)) => calls,
        Err(error) => return assert!(error.code() != 0 && error.http_status() >= 400),
    };
    calls.into_iter().flatten().for_each(check);
}

fn check(call: Call) {
    if call.method == "system.multicall" {
        let inner = Call::of_multicall(call.params).unwrap_or_default();
        return inner.into_iter().flatten().filter(|call| call.method != "system.multicall").for_each(check);
    }
    let Ok(params) = authorize(&call.method, call.params, SECRET) else { return };
    let params = Params::new(&params);
    // Methods have options at the first or the second position.
    [params.options(0), params.options(1)].into_iter().flatten().for_each(check_options);
    // No other reading fails but by an error.
    let _ = (params.uris(0), params.document(0), params.range(), params.movement(), params.place(2));
}

/// Headers may hold secrets, so that they are not written.
fn check_options(mut options: Aria2Options) {
    assert!(
        options.requests.headers.iter().all(|header| header.contains(':') && !header.contains(['\r', '\n']))
    );
    let written = options.to_json();
    let read = written.as_object().map(Aria2Options::parse);
    options.requests.headers.clear();
    assert_eq!(read, Some(Ok(options)));
}
