//! oncebox: one business effect per operation, or an honest "cannot know".
pub mod config;
pub mod telemetry;
pub mod domain;
pub mod contract_file;
pub mod ingress;
pub mod relay;
pub mod consumer;
pub mod maintain;
pub mod runtime;
pub mod tool;
pub mod store;
pub mod broker;
pub mod operator;
