//! What a harness tells the server beside the API, and is told by it: what is to go wrong, and what did. Only over plain HTTP, where
//! everybody is the administrator.
//!
//! | request | |
//! | --- | --- |
//! | `POST /vlab/faults` with an order | it is in force; answered with its number, `{"order": 0}` |
//! | `DELETE /vlab/faults/NUMBER` | it is over |
//! | `GET /vlab/faults` | what happened since the last such request: a list of numbers of orders, and what was done |

use serde_json::json;
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};
use vlab_kube::{Core, Failure, Order};

/// A watch that is asked for with this header hears everything, whatever is to go wrong.
pub(crate) const FAITHFUL: &str = "vlab-faithful";

const FAULTS: &str = "/vlab/faults";

/// Is it for us, and not for the API?
pub(crate) fn is_about(request: &Request) -> bool {
    request.path.strip_prefix(FAULTS).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(crate) fn answer(core: &mut Core, now: Timestamp, request: &Request) -> Response {
    let number = request.path.strip_prefix(FAULTS).and_then(|rest| rest.strip_prefix('/'));
    match (request.method, number) {
        (Method::Post, None) => match serde_json::from_slice::<Order>(&request.body) {
            Ok(order) => Response::json(200, &json!({ "order": core.order(now, order) })),
            Err(error) => Failure::bad_request(format!("the order of a fault: {error}")).response(),
        },
        (Method::Get, None) => Response::json(200, &core.faults.take_happened()),
        (Method::Delete, Some(number)) => match number.parse() {
            Ok(number) => {
                core.faults.cancel(number);
                Response::json(200, &json!({}))
            }
            Err(_) => Failure::bad_request(format!("{number:?} is no number of an order")).response(),
        },
        _ => Failure::no_such_path().response(),
    }
}
