//! Answers that are wrong on purpose.

use std::collections::BTreeMap;

use vlab_api::http::{Body, Request, Response};

use crate::alteration::WrongAnswer;

/// What was answered, as far as a wrong answer needs it.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    first: BTreeMap<String, Body>,
}

impl Answers {
    /// The answer as it is under an alteration of that operation's answers.
    pub(crate) fn alter(&mut self, how: WrongAnswer, request: &Request, response: Response) -> Response {
        if !response.is_success() {
            return response;
        }
        match how {
            WrongAnswer::Code => {
                let status = match response.status {
                    200 => 202,
                    _ => 200,
                };
                Response { status, ..response }
            }
            WrongAnswer::Failure => Response { status: 500, ..response },
            WrongAnswer::Stale => {
                let key = format!("{} {}", request.method, request.path);
                let body = self.first.entry(key).or_insert_with(|| response.body.clone()).clone();
                Response { body, ..response }
            }
        }
    }
}
