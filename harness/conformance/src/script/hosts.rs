//! What hosts do in a check: they register, work through their instructions, reply, and report.

use super::*;

impl Script<'_> {
    pub(super) fn host(&mut self, name: &str) -> Done<&mut Host> {
        match self.hosts.iter_mut().find(|host| host.name == name) {
            Some(host) => Ok(host),
            None => differs(format!("the check itself is wrong: it has no host {name:?}")),
        }
    }

    pub(super) fn host_path(&mut self, name: &str) -> Done<String> {
        let infra_env = self.var("infra_env")?;
        let id = self.host(name)?.id.clone();
        Ok(format!("/infra-envs/{infra_env}/hosts/{id}"))
    }

    pub(super) async fn register(&mut self, register: &Register) -> Done {
        let infra_env = self.var("infra_env")?;
        let id = self.host(&register.host)?.id.clone();
        let body = json!({"host_id": id, "discovery_agent_version": self.target.agent_version});
        let response = self.ask(Method::Post, &format!("/infra-envs/{infra_env}/hosts"), Some(&body)).await?;
        let call = RequestStep {
            status: Value::from(register.status.unwrap_or(201)),
            error: register.error.clone(),
            expect: register.expect.clone(),
            ..RequestStep::default()
        };
        self.judge(&call, &response)?;
        if response.status == 201 {
            let host = self.host(&register.host)?;
            host.registered = true;
            // A new run of the agent remembers nothing.
            host.sent.clear();
            host.told_to_install = false;
        }
        Ok(())
    }

    /// A host asks for instructions.
    pub(super) async fn instructions(&mut self, name: &str) -> Done<Response> {
        let time = self.wire.now().as_secs() + self.host(name)?.clock_ahead;
        let path = format!("{BASE_PATH}{}/instructions?timestamp={time}", self.host_path(name)?);
        let request =
            Request::new(Method::Get, path).header("discovery_agent_version", self.target.agent_version.clone());
        self.send(&request).await
    }

    pub(super) async fn post_reply(
        &mut self,
        name: &str,
        step: &str,
        id: &str,
        exit: i64,
        output: &str,
    ) -> Done<Response> {
        let path = format!("{}/instructions", self.host_path(name)?);
        let body = json!({"step_type": step, "step_id": id, "exit_code": exit, "output": output, "error": ""});
        self.ask(Method::Post, &path, Some(&body)).await
    }

    /// Every host asks once and answers what it is told to do.
    pub(super) async fn hosts_work(&mut self) -> Done {
        let asking: Vec<String> =
            self.hosts.iter().filter(|h| h.registered && !h.silent).map(|h| h.name.clone()).collect();
        for name in asking {
            let response = self.instructions(&name).await?;
            if self.is_gone(&name, &response)? {
                continue;
            }
            if response.status != 200 {
                return differs(format!("host {name} asks for instructions: {}", answer_of(&response)));
            }
            let steps: Value = response.decode().unwrap_or_default();
            for step in steps["instructions"].as_array().into_iter().flatten() {
                let kind = step["step_type"].as_str().unwrap_or_default().to_owned();
                if self.holding && PREPARATION.contains(&kind.as_str()) {
                    continue;
                }
                let args: Vec<String> = step["args"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|arg| arg.as_str().map(str::to_owned))
                    .collect();
                let host = self.host(&name)?;
                host.told_to_install |= kind == "install";
                let Some(output) = host.answer(&kind, &args) else { continue };
                if host.sent.get(&kind) == Some(&output) {
                    continue;
                }
                host.sent.insert(kind.clone(), output.clone());
                let id = step["step_id"].as_str().unwrap_or_default().to_owned();
                let response = self.post_reply(&name, &kind, &id, 0, &output).await?;
                if self.is_gone(&name, &response)? {
                    break;
                }
                if response.status != 204 {
                    return differs(format!("the answer of host {name} to {kind}: {}", answer_of(&response)));
                }
            }
        }
        Ok(())
    }

    /// Over Kubernetes a host goes with its resource at a moment that nobody knows: it is asked nothing more.
    fn is_gone(&mut self, name: &str, response: &Response) -> Done<bool> {
        let is_gone = self.check.over_kube && response.status == 404;
        self.host(name)?.silent |= is_gone;
        Ok(is_gone)
    }

    /// The hosts work, and time passes.
    pub(super) async fn work(&mut self) -> Done {
        self.hosts_work().await?;
        self.wire.sleep(self.target.tick).await;
        Ok(())
    }

    pub(super) async fn poll(&mut self, poll: &Poll) -> Done {
        let response = self.instructions(&poll.host).await?;
        let body: Value = match (response.status, response.decode()) {
            (200, Ok(body)) => body,
            _ => return differs(format!("expected 200 with steps, found {}", answer_of(&response))),
        };
        let mut wrong = Vec::new();
        let none = Vec::new();
        let steps = body["instructions"].as_array().unwrap_or(&none);
        if let Some(expected) = &poll.steps {
            let kinds: Value = steps.iter().map(|step| step["step_type"].clone()).collect();
            wrong.extend(differences(&self.filled(expected)?, Some(&kinds)).into_iter().map(|l| format!("steps: {l}")));
        }
        let mut expected = json!({});
        if let Some(next) = poll.next {
            // Left out on the wire when it is 0.
            expected["next_instruction_seconds"] = if next == 0 { json!({"$any": [0, null]}) } else { json!(next) };
        }
        if let Some(then) = &poll.then {
            expected["post_step_action"] = json!(then);
        }
        wrong.extend(differences(&expected, Some(&body)));
        for (kind, expected) in &poll.args {
            let args = steps.iter().find(|step| step["step_type"] == kind.as_str()).map(|step| {
                let list = step["args"].as_array().cloned().unwrap_or_default();
                let inner = |arg: &Value| {
                    let json = arg.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
                    json.filter(|v| v.is_object() || v.is_array()).unwrap_or_else(|| arg.clone())
                };
                Value::Array(list.iter().map(inner).collect())
            });
            let lines = differences(&self.filled(expected)?, args.as_ref());
            wrong.extend(lines.into_iter().map(|line| format!("arguments of {kind}: {line}")));
        }
        if wrong.is_empty() { Ok(()) } else { differs(wrong.join("\n")) }
    }

    pub(super) async fn reply(&mut self, reply: &Reply) -> Done {
        let patch = self.filled(&reply.patch)?;
        let host = self.host(&reply.host)?;
        if !patch.is_null() {
            host.patch = merged(&host.patch, &patch);
        }
        let output = match &reply.output {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => host.answer(&reply.step, &[]).unwrap_or_default(),
        };
        let output = self.filled_text(&output)?;
        self.host(&reply.host)?.sent.insert(reply.step.clone(), output.clone());
        let id = format!("{}-00000001", reply.step);
        let response = self.post_reply(&reply.host, &reply.step, &id, reply.exit, &output).await?;
        let wanted = reply.status.unwrap_or(204);
        if response.status != wanted {
            return differs(format!("expected status {wanted}, found {}", answer_of(&response)));
        }
        Ok(())
    }

    pub(super) async fn report(&mut self, report: &Report) -> Done {
        let path = format!("{}/progress", self.host_path(&report.host)?);
        for stage in report.stage.as_slice() {
            let body = json!({"current_stage": stage, "progress_info": report.info});
            let response = self.ask(Method::Put, &path, Some(&body)).await?;
            let wanted = report.status.unwrap_or(200);
            if response.status != wanted {
                return differs(format!("{stage}: expected status {wanted}, found {}", answer_of(&response)));
            }
        }
        Ok(())
    }

    pub(super) fn change(&mut self, change: &Change) -> Done {
        let inventory = self.filled(&change.inventory)?;
        let host = self.host(&change.host)?;
        host.patch = merged(&host.patch, &inventory);
        for (step, answer) in &change.answers {
            host.answers.insert(step.clone(), answer.clone());
        }
        // What has changed is told again.
        host.sent.clear();
        if let Some(silent) = change.silent {
            host.silent = silent;
        }
        if let Some(ahead) = change.clock_ahead {
            host.clock_ahead = ahead;
        }
        Ok(())
    }

    // ---- what is so, and what comes to be so ----
}
