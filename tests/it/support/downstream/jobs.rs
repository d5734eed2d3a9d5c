//! Provider jobs: submitted now, done later.

use std::time::Duration;

use serde_json::{Value, json};

use super::Downstream;
use super::calls::{Calls, Kind};

/// `POST /jobs`; the subject is the key.
pub(crate) struct Jobs;

/// `GET /jobs/ID`; the subject is the job.
pub(crate) struct Polls;

impl Kind for Jobs {
    const NAME: &'static str = "jobs";
}

impl Kind for Polls {
    const NAME: &'static str = "poll";
}

impl Calls<'_, Jobs> {
    /// Jobs that are submitted from now on take this long; zero: they are done within the call.
    pub(crate) async fn take(&self, time: Duration) {
        self.order(Some(time), "done").await;
    }

    /// Jobs that are submitted from now on run until a test ends them.
    pub(crate) async fn run_until_told(&self) {
        self.order(None, "done").await;
    }

    /// Jobs that are submitted from now on fail after this time.
    pub(crate) async fn break_after(&self, time: Duration) {
        self.order(Some(time), "failed").await;
    }

    /// Ends a running job with its effect.
    pub(crate) async fn finish(&self, job: &str) {
        self.downstream.control(json!({"end_job": {"id": job, "end": "done"}})).await;
    }

    /// Ends a running job without an effect.
    pub(crate) async fn break_off(&self, job: &str) {
        self.downstream.control(json!({"end_job": {"id": job, "end": "failed"}})).await;
    }

    /// The jobs under a key, in the order of their ids.
    pub(crate) async fn under(&self, key: &str) -> Vec<String> {
        let jobs = self.downstream.get("/jobs").await;
        let jobs = jobs.as_object().cloned().unwrap_or_default();
        jobs.into_iter().filter(|(_, job)| job["key"] == key).map(|(id, _)| id).collect()
    }

    /// `running`, `done` or `failed`; empty for no job.
    pub(crate) async fn state(&self, job: &str) -> String {
        let jobs: Value = self.downstream.get("/jobs").await;
        jobs[job]["state"].as_str().unwrap_or_default().to_owned()
    }

    async fn order(&self, time: Option<Duration>, end: &str) {
        let time = time.map(|time| u64::try_from(time.as_millis()).unwrap());
        self.downstream.control(json!({"jobs": {"take_ms": time, "end": end}})).await;
    }
}

impl Downstream {
    /// The calls that submit jobs.
    pub(crate) fn jobs(&self) -> Calls<'_, Jobs> {
        Calls::all(self)
    }

    /// The calls that ask how a job stands.
    pub(crate) fn polls(&self) -> Calls<'_, Polls> {
        Calls::all(self)
    }
}
