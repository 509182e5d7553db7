//! A plan as an Indexed Job of Kubernetes: one part of it in each pod, all beginning at one time.

use vlab_scenario::{Catalogue, LoadPlan, SourceFile};

/// Why the plan cannot be carried out where only the plan is: the pods have the catalogue of their `vlab`, and no files of this
/// computer.
pub fn unfit(plan: &LoadPlan) -> Option<String> {
    let known = Catalogue::embedded().list();
    let elsewhere = plan.clusters.iter().find(|clusters| !known.iter().any(|entry| entry.name == clusters.named))?;
    Some(format!(
        "line {}: the pods would not have the file of the scenario {}: name one of the catalogue (`vlab list`), or carry out the parts \
         of the plan yourself with `--partition i/n --start-at`",
        elsewhere.line, elsewhere.named
    ))
}

/// A ConfigMap with the plan and a Job with so many pods, as YAML (which JSON is). `start_at`: seconds since the epoch.
pub fn kubernetes(
    plan: &LoadPlan,
    source: &SourceFile,
    (workers, image): (u32, &str),
    url: &str,
    start_at: u64,
) -> String {
    let name = format!("vlab-load-{}", plan.name);
    let labels = serde_json::json!({"app.kubernetes.io/name": "vlab-load", "app.kubernetes.io/instance": name});
    // The index of a pod begins at 0, a part's number at 1.
    let command = format!(
        "exec vlab load /plan/plan.yaml --url '{url}' --partition \"$((JOB_COMPLETION_INDEX + 1))/{workers}\" --start-at {start_at} --json -"
    );
    let plan_map = serde_json::json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "data": {"plan.yaml": String::from_utf8_lossy(&source.bytes)},
    });
    let job = serde_json::json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": workers,
            "parallelism": workers,
            // A part that begins again later would be another load.
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{
                        "name": "vlab-load",
                        "image": image,
                        "command": ["/bin/sh", "-c", command],
                        "volumeMounts": [{"name": "plan", "mountPath": "/plan", "readOnly": true}],
                    }],
                    "volumes": [{"name": "plan", "configMap": {"name": name}}],
                },
            },
        },
    });
    let text = |value| serde_json::to_string_pretty(value).unwrap_or_default();
    format!("{}\n---\n{}\n", text(&plan_map), text(&job))
}

#[cfg(test)]
mod tests {
    use vlab_scenario::{Catalogue, load_plan};

    use super::*;

    #[test]
    fn a_plan_whose_scenario_is_a_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own.yaml");
        std::fs::write(
            &own,
            "version: 1\nname: own\ncluster: {topology: sno}\nhosts: [{name: m}]\nbudgets: {total: 1h}\n",
        )
        .unwrap();
        let why = |scenario: &str| {
            let text = format!(
                "version: 1\nname: p\nmode: installs\npopulation:\n  clusters:\n  - {{scenario: {scenario}, count: 2}}\n\
                 phases: [ramp: 1s]\n"
            );
            let plan = load_plan(&SourceFile::new("p.yaml", text), &Catalogue::embedded());
            unfit(&plan.unwrap_or_else(|e| panic!("{e}")))
        };
        assert_eq!(why("sno"), None);
        let why = why(&own.display().to_string()).unwrap();
        assert!(why.starts_with("line 6: the pods would not have the file of the scenario /"), "{why}");
    }

    #[test]
    fn each_pod_has_its_part() {
        let source = SourceFile::new(
            "p.yaml",
            "version: 1\nname: p\nmode: idle\npopulation: {unbound: 9}\nphases: [ramp: 1s]\n",
        );
        let plan = load_plan(&source, &Catalogue::embedded()).unwrap();
        let text = kubernetes(&plan, &source, (3, "lab/vlab:1"), "http://svc:8090", 1_800_000_000);
        let objects: Vec<serde_json::Value> =
            text.split("\n---\n").map(|object| serde_json::from_str(object).unwrap()).collect();
        let [map, job] = objects.as_slice() else { panic!("{text}") };
        assert_eq!(map["data"]["plan.yaml"].as_str().unwrap().as_bytes(), source.bytes);
        assert_eq!((&job["spec"]["completionMode"], &job["spec"]["completions"]), (&"Indexed".into(), &3.into()));
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["volumes"][0]["configMap"]["name"], map["metadata"]["name"]);
        let command = pod["containers"][0]["command"][2].as_str().unwrap();
        assert!(command.contains("$((JOB_COMPLETION_INDEX + 1))/3") && command.contains("--start-at 1800000000"));
    }
}
