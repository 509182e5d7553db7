//! The world of a check: made, brought to a milestone, and removed at the end.

use super::*;

impl Script<'_> {
    pub(super) async fn make_world(&mut self) -> Done {
        let world = &self.check.world;
        if self.check.over_kube {
            self.apply_world().await?;
            return self.reach(world.at).await;
        }
        let body = match world.cluster {
            ClusterKind::Nothing | ClusterKind::None => None,
            ClusterKind::Sno => Some(self.base_body("cluster")?),
            ClusterKind::Ha => Some(merged(
                &self.base_body("ha-cluster")?,
                &json!({"api_vips": [{"ip": "192.168.126.200"}], "ingress_vips": [{"ip": "192.168.126.201"}]}),
            )),
            ClusterKind::Umn => Some(merged(&self.base_body("ha-cluster")?, &json!({"user_managed_networking": true}))),
            ClusterKind::Day2 => Some(self.base_body("import")?),
        };
        if let Some(body) = body {
            let body = self.filled(&merged(&body, &world.patch))?;
            let path = if world.cluster == ClusterKind::Day2 { "/clusters/import" } else { "/clusters" };
            let made = self.must(201, Method::Post, path, Some(&body)).await?;
            self.vars.insert("cluster".to_owned(), made["id"].clone());
        }
        if world.cluster != ClusterKind::Nothing {
            let mut body = self.base_body("infra-env")?;
            if let Some(cluster) = self.vars.get("cluster") {
                body["cluster_id"] = cluster.clone();
            }
            let body = self.filled(&merged(&body, &world.infra_env))?;
            let made = self.must(201, Method::Post, "/infra-envs", Some(&body)).await?;
            self.vars.insert("infra_env".to_owned(), made["id"].clone());
        }
        self.reach(world.at).await
    }

    /// Goes on to a milestone, one after the other.
    pub(super) async fn reach(&mut self, milestone: Milestone) -> Done {
        use Milestone::*;
        let way: &[Milestone] = match milestone {
            Made => &[],
            Registered => &[Registered],
            Known => &[Registered, Known],
            Ready => &[Registered, Known, Ready],
            Preparing => &[Registered, Known, Ready, Preparing],
            Installing => &[Registered, Known, Ready, Preparing, Installing],
            InProgress => &[Registered, Known, Ready, Preparing, Installing, InProgress],
            Finalizing => &[Registered, Known, Ready, Preparing, Installing, InProgress, Finalizing],
            Installed => &[Registered, Known, Ready, Preparing, Installing, InProgress, Finalizing, Installed],
            Error => &[Registered, Known, Ready, Preparing, Installing, InProgress, Error],
            Cancelled => &[Registered, Known, Ready, Preparing, Installing, Cancelled],
        };
        for next in way.iter().filter(|next| **next > self.at).copied().collect::<Vec<_>>() {
            self.holding = milestone == Preparing;
            if let Err(trouble) = self.go_to(next).await {
                return Err(in_front(&format!("on the way to {milestone:?}, at {next:?}"), trouble));
            }
            self.at = next;
        }
        self.holding = milestone == Preparing;
        Ok(())
    }

    async fn all_hosts(&mut self, status: &str) -> Done {
        let one = Many::One(status.to_owned());
        let statuses = self.hosts.iter().map(|host| (host.name.clone(), one.clone())).collect();
        self.wait(&statuses).await
    }

    async fn cluster_is(&mut self, status: &str) -> Done {
        self.cluster_is_any(&[status]).await
    }

    async fn cluster_is_any(&mut self, statuses: &[&str]) -> Done {
        let any = Many::Several(statuses.iter().map(|status| (*status).to_owned()).collect());
        self.wait(&BTreeMap::from([("cluster".to_owned(), any)])).await
    }

    async fn go_to(&mut self, next: Milestone) -> Done {
        let day2 = self.check.world.cluster == ClusterKind::Day2;
        let names: Vec<String> = self.hosts.iter().map(|host| host.name.clone()).collect();
        match next {
            Milestone::Made => Ok(()),
            Milestone::Registered => {
                for host in &names {
                    let register = Register { host: host.clone(), status: None, error: None, expect: None };
                    self.register(&register).await?;
                }
                if self.check.over_kube {
                    return self.agents_are_there().await;
                }
                for (host, role) in &self.check.world.roles {
                    let path = self.host_path(host)?;
                    self.must(201, Method::Patch, &path, Some(&json!({"host_role": role}))).await?;
                }
                Ok(())
            }
            Milestone::Known => {
                let world = &self.check.world;
                if world.pool || world.cluster == ClusterKind::None {
                    self.all_hosts("known-unbound").await?;
                }
                if world.pool {
                    self.bind_all().await?;
                }
                let unbound = world.cluster == ClusterKind::None;
                self.all_hosts(if unbound { "known-unbound" } else { "known" }).await
            }
            Milestone::Ready if day2 => Ok(()),
            Milestone::Ready => self.cluster_is("ready").await,
            Milestone::Preparing if day2 => Ok(()),
            Milestone::Preparing => {
                if self.check.over_kube {
                    return self.approve_all().await;
                }
                let path = format!("/clusters/{}/actions/install", self.var("cluster")?);
                self.must(202, Method::Post, &path, None).await?;
                self.prepares().await
            }
            Milestone::Installing => self.begin_to_install(&names, day2).await,
            Milestone::InProgress => {
                for host in &names {
                    self.report(&Report {
                        host: host.clone(),
                        stage: Many::One("Starting installation".to_owned()),
                        info: String::new(),
                        status: None,
                    })
                    .await?;
                }
                self.all_hosts("installing-in-progress").await
            }
            Milestone::Finalizing => self.finish_on_hosts(&names, day2).await,
            Milestone::Installed if day2 => Ok(()),
            Milestone::Installed => {
                let cluster = self.var("cluster")?;
                let pem = json!(vlab_agents::ingress::LAB_INGRESS_PEM);
                let path = format!("/clusters/{cluster}/uploads/ingress-cert");
                self.must(201, Method::Post, &path, Some(&pem)).await?;
                let report = json!({"name": "console", "status": "available", "status_info": "ok"});
                let path = format!("/clusters/{cluster}/monitored-operators");
                self.must(200, Method::Put, &path, Some(&report)).await?;
                if self.check.over_kube {
                    // Its controllers open it for more hosts at once.
                    return self.cluster_is_any(&["installed", "adding-hosts"]).await;
                }
                self.cluster_is("installed").await
            }
            Milestone::Error => {
                let failed = Report {
                    host: names.first().cloned().unwrap_or_default(),
                    stage: Many::One("Failed".to_owned()),
                    info: "on purpose".to_owned(),
                    status: None,
                };
                self.report(&failed).await?;
                self.cluster_is("error").await
            }
            Milestone::Cancelled if self.check.over_kube => {
                differs("the check itself is wrong: over Kubernetes nothing is cancelled that stays")
            }
            Milestone::Cancelled => {
                let path = format!("/clusters/{}/actions/cancel", self.var("cluster")?);
                self.must(202, Method::Post, &path, None).await?;
                self.cluster_is("cancelled").await
            }
        }
    }

    /// Where hosts keep back what it waits for, it stays at that.
    pub(super) async fn prepares(&mut self) -> Done {
        if self.holding {
            self.cluster_is("preparing-for-installation").await?;
            self.all_hosts("preparing-for-installation").await?;
        }
        Ok(())
    }

    async fn begin_to_install(&mut self, names: &[String], day2: bool) -> Done {
        if day2 && self.check.over_kube {
            self.approve_all().await?;
        } else if day2 {
            for host in names {
                let path = format!("{}/actions/install", self.host_path(host)?);
                self.must(202, Method::Post, &path, None).await?;
            }
        } else {
            self.cluster_is("installing").await?;
        }
        let begun = self.wire.now();
        while !self.hosts.iter().all(|host| host.told_to_install) {
            if self.wire.now().since(begun) >= self.target.patience {
                return differs("not every host was told to install");
            }
            self.work().await?;
        }
        Ok(())
    }

    /// All hosts say that they have done everything.
    async fn finish_on_hosts(&mut self, names: &[String], day2: bool) -> Done {
        for host in names {
            let shown = self.shown_host(host).await?;
            let stages = shown["progress_stages"].as_array().cloned().unwrap_or_default();
            // That one is of an appliance's image only.
            let current = &shown["progress"]["current_stage"];
            let done = stages.iter().position(|stage| stage == current).map_or(0, |at| at + 1);
            let stages = stages[done..]
                .iter()
                .filter_map(|s| s.as_str().map(str::to_owned))
                .filter(|s| s != "Copying registry data to disk")
                .collect();
            let stage = Many::Several(stages);
            self.report(&Report { host: host.clone(), stage, info: String::new(), status: None }).await?;
            if let Ok(host) = self.host(host) {
                // Its agent is gone since the reboot.
                host.silent = true;
            }
        }
        if day2 { Ok(()) } else { self.cluster_is("finalizing").await }
    }

    /// Removes what the check has made; gives what could not be removed.
    pub(super) async fn clean_up(&mut self) -> Vec<String> {
        let mut left = self.take_back().await;
        let mut made = std::mem::take(&mut self.made);
        // Clusters first: their hosts go with them, and an infra-env with bound hosts stays.
        made.sort_by_key(|one| one.what);
        let mut stay = Vec::new();
        for one in made {
            if self.remove(&one).await.is_err() {
                stay.push(one);
            }
        }
        // Once more: a cluster stays while a host is on its way to it, and infra-envs take their hosts with them.
        for one in &stay {
            if let Err(problem) = self.remove(one).await {
                left.push(format!("{one}: {problem}"));
            }
        }
        left
    }

    async fn remove(&mut self, one: &Made) -> Result<(), String> {
        let path = format!("/{}/{}", one.what, one.id);
        let told = |trouble: Trouble| match trouble {
            Trouble::Differs(text) | Trouble::Lab(text) => text,
        };
        if one.what == "infra-envs" {
            let query = format!("{path}/hosts");
            if let Ok(Value::Array(hosts)) = self.must(200, Method::Get, &query, None).await {
                for id in hosts.iter().filter_map(|host| host["id"].as_str()) {
                    let _ = self.ask(Method::Delete, &format!("{path}/hosts/{id}"), None).await;
                }
            }
        }
        let gone = |response: &Response| matches!(response.status, 204 | 404);
        let mut response = self.ask(Method::Delete, &path, None).await.map_err(told)?;
        if one.what == "clusters" && response.status != 204 {
            // While it installs it can only be cancelled; the refusal may be 404 although it is there.
            let _ = self.ask(Method::Post, &format!("{path}/actions/cancel"), None).await;
            response = self.ask(Method::Delete, &path, None).await.map_err(told)?;
        }
        if gone(&response) { Ok(()) } else { Err(answer_of(&response)) }
    }
}
