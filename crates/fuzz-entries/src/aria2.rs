//! Calls of aria2's clients.

use longhaul_core::proto::aria2_rpc::{Call, Incoming, JobOptions, Method, authorize};

/// The secret that the corpus holds.
const SECRET: &str = "s";

/// Reads calls, those of a multicall too, as a client that has the secret; options are written anew and read.
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
    match Method::parse(&call.method, &params) {
        Ok(Method::AddUri { uris, options, .. }) => {
            assert!(!uris.is_empty());
            check_options(options);
        }
        Ok(Method::ChangeOption { options, .. } | Method::ChangeGlobalOption(options)) => {
            check_options(options)
        }
        _ => {}
    }
}

/// Headers may hold secrets, so that they are not written.
fn check_options(mut options: JobOptions) {
    assert!(
        options.requests.headers.iter().all(|header| header.contains(':') && !header.contains(['\r', '\n']))
    );
    let written = options.to_json();
    let read = written.as_object().map(JobOptions::parse);
    options.requests.headers.clear();
    assert_eq!(read, Some(Ok(options)));
}
