//! JSON-RPC 2.0 as in aria2: calls, batches, replies, and the token before the parameters.

use serde_json::{Value, json};

use super::{Gid, RpcError};

/// The largest number of calls of a batch or `system.multicall`. AriaNg sends a few, aria2p three;
/// a script may send 1,000 pauses.
pub const MAX_CALLS: usize = 1_000;

/// The body of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// One call.
    One(Call),
    /// Several calls, answered by an array in the same order.
    Batch(Vec<Result<Call, RpcError>>),
}

/// A call of a method.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The id that the reply repeats; null if the request has none.
    pub id: Value,
    /// The method's name.
    pub method: String,
    /// The parameters, the token included.
    pub params: Vec<Value>,
}

impl Incoming {
    /// Parses a body.
    ///
    /// # Errors
    /// [`RpcError`] if the body is not JSON, not a call, or a batch that is empty or longer than
    /// [`MAX_CALLS`].
    pub fn parse(body: &[u8]) -> Result<Self, RpcError> {
        match serde_json::from_slice(body).map_err(|error| RpcError::NoJson(error.to_string()))? {
            Value::Array(calls) if calls.is_empty() => Err(RpcError::NoRequest("the batch is empty")),
            Value::Array(calls) if calls.len() > MAX_CALLS => {
                Err(RpcError::NoRequest("too many calls in one batch"))
            }
            Value::Array(calls) => Ok(Self::Batch(calls.into_iter().map(Call::from_json).collect())),
            one => Call::from_json(one).map(Self::One),
        }
    }
}

impl Call {
    fn from_json(value: Value) -> Result<Self, RpcError> {
        let Value::Object(mut fields) = value else { return Err(RpcError::NoRequest("an object expected")) };
        let Some(Value::String(method)) = fields.remove("method") else {
            return Err(RpcError::NoRequest("'method' must be a string"));
        };
        let params = match fields.remove("params") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(params)) => params,
            Some(_) => return Err(RpcError::NoRequest("'params' must be an array")),
        };
        Ok(Self { id: fields.remove("id").unwrap_or(Value::Null), method, params })
    }

    /// Returns the calls of a `system.multicall`, each with its own token.
    ///
    /// # Errors
    /// [`RpcError`] if `params` is not one array of at most [`MAX_CALLS`].
    pub fn of_multicall(params: Vec<Value>) -> Result<Vec<Result<Self, RpcError>>, RpcError> {
        let Some(Value::Array(calls)) = params.into_iter().next() else {
            return Err(RpcError::Parameter { position: 0, expected: "an array of calls" });
        };
        if calls.len() > MAX_CALLS {
            return Err(RpcError::NoRequest("too many calls in one multicall"));
        }
        Ok(calls.into_iter().map(Self::of_multicall_entry).collect())
    }

    fn of_multicall_entry(mut entry: Value) -> Result<Self, RpcError> {
        if let Some(fields) = entry.as_object_mut()
            && let Some(name) = fields.remove("methodName")
        {
            fields.insert("method".to_owned(), name);
            return Self::from_json(entry);
        }
        Err(RpcError::NoRequest("'methodName' is missing"))
    }
}

/// Checks the token and returns the parameters after it.
///
/// As in aria2, `system.listMethods`, `system.listNotifications` and `system.multicall` take no
/// token, but the calls of a multicall do.
///
/// # Errors
/// [`RpcError::Unauthorized`].
pub fn authorize(method: &str, mut params: Vec<Value>, secret: &str) -> Result<Vec<Value>, RpcError> {
    let token = params.first().and_then(Value::as_str).and_then(|first| first.strip_prefix("token:"));
    let is_right = token.is_some_and(|token| equal_in_constant_time(token.as_bytes(), secret.as_bytes()));
    if token.is_some() {
        params.remove(0);
    }
    if is_right || method.starts_with("system.") { Ok(params) } else { Err(RpcError::Unauthorized) }
}

/// Compares in a time that depends only on the lengths.
fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// A reply to one call.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The call's id.
    pub id: Value,
    /// The result of the method.
    pub result: Result<Value, RpcError>,
}

impl Reply {
    /// Returns the response object.
    pub fn to_json(&self) -> Value {
        match &self.result {
            Ok(result) => json!({"id": self.id, "jsonrpc": "2.0", "result": result}),
            Err(error) => json!({"id": self.id, "jsonrpc": "2.0", "error": error.to_json()}),
        }
    }

    /// Returns the entry in the array of a multicall: an array of one value, or an error.
    pub fn to_multicall_json(&self) -> Value {
        match &self.result {
            Ok(result) => json!([result]),
            Err(error) => error.to_json(),
        }
    }
}

/// The notifications sent over a WebSocket.
pub const NOTIFICATIONS: &[&str] = &[
    "aria2.onDownloadStart",
    "aria2.onDownloadPause",
    "aria2.onDownloadStop",
    "aria2.onDownloadComplete",
    "aria2.onDownloadError",
];

/// Returns a notification for a WebSocket, such as `aria2.onDownloadStart`.
pub fn notification(method: &str, gid: Gid) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": [{"gid": gid.to_string()}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(body: &str) -> Result<Incoming, RpcError> {
        Incoming::parse(body.as_bytes())
    }

    #[test]
    fn body_is_one_call_or_a_batch_or_has_a_code_of_json_rpc() {
        let one = Call { id: json!(7), method: "m".to_owned(), params: vec![json!(1)] };
        assert_eq!(call(r#"{"id":7,"method":"m","params":[1]}"#), Ok(Incoming::One(one.clone())));
        let batch = call(r#"[{"id":7,"method":"m","params":[1]},3]"#);
        assert_eq!(batch, Ok(Incoming::Batch(vec![Ok(one), Err(RpcError::NoRequest("an object expected"))])));
        let bare = Call { id: Value::Null, method: "m".to_owned(), params: vec![] };
        assert_eq!(call(r#"{"method":"m"}"#), Ok(Incoming::One(bare)));
        let code = |body: &str| call(body).unwrap_err().code();
        assert_eq!(code("{"), -32_700);
        for body in ["[]", "3", "{}", r#"{"method":1}"#, r#"{"method":"m","params":{}}"#] {
            assert_eq!(code(body), -32_600, "{body}");
        }
        let many = format!("[{}]", vec!["1"; MAX_CALLS + 1].join(","));
        assert_eq!(code(&many), -32_600);
    }

    #[test]
    fn token_is_required_and_removed() {
        let params = |first: &str| vec![json!(first), json!(2)];
        assert_eq!(authorize("aria2.pause", params("token:right"), "right"), Ok(vec![json!(2)]));
        for wrong in ["token:wrong", "token:righ", "token:", "right"] {
            let answer = authorize("aria2.pause", params(wrong), "right");
            assert_eq!(answer, Err(RpcError::Unauthorized), "{wrong}");
        }
        assert_eq!(authorize("aria2.pause", vec![], "right"), Err(RpcError::Unauthorized));
        assert_eq!(authorize("system.listMethods", vec![], "right"), Ok(vec![]));
    }

    #[test]
    fn calls_of_a_multicall_are_parsed_and_answered_separately() {
        let entries = json!([{"methodName": "m", "params": ["token:a"]}, {"method": "m"}, 5]);
        let calls = Call::of_multicall(vec![entries]).unwrap();
        assert!(matches!(&calls[0], Ok(call) if call.method == "m" && call.params == [json!("token:a")]));
        assert!(calls[1].is_err() && calls[2].is_err());
        assert!(Call::of_multicall(vec![]).is_err());
        let good = Reply { id: json!("x"), result: Ok(json!("OK")) };
        assert_eq!(good.to_json(), json!({"id": "x", "jsonrpc": "2.0", "result": "OK"}));
        assert_eq!(good.to_multicall_json(), json!(["OK"]));
        let bad = Reply { id: Value::Null, result: Err(RpcError::Unauthorized) };
        assert_eq!(bad.to_json()["error"], json!({"code": 1, "message": "Unauthorized"}));
        assert_eq!(bad.to_multicall_json()["code"], 1);
        let message = notification("aria2.onDownloadStart", Gid::new(1));
        assert_eq!(message["params"][0]["gid"], "0000000000000001");
    }
}
