//! The tools that a worker serves.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ServeError, ServedTool};

/// The tools that a worker serves, by name and version.
#[derive(Debug, Default)]
pub struct ToolSet(BTreeMap<String, BTreeMap<String, Arc<ServedTool>>>);

impl ToolSet {
    /// Adds a tool.
    ///
    /// # Errors
    /// When this version is there already; the first one stays.
    pub fn add(&mut self, served: ServedTool) -> Result<(), ServeError> {
        let (tool, version) = (served.contract().tool.clone(), served.contract().version.clone());
        let versions = self.0.entry(tool.to_string()).or_default();
        if versions.contains_key(version.as_str()) {
            return Err(ServeError::Twice { tool, version });
        }
        versions.insert(version.to_string(), Arc::new(served));
        Ok(())
    }

    /// The tool for a record's name and version; `None`: another worker may have it.
    #[must_use]
    pub fn get(&self, tool: &str, version: &str) -> Option<&Arc<ServedTool>> {
        self.0.get(tool)?.get(version)
    }

    /// The names, each once: one queue each.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Every version of every tool, sorted by name and version.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ServedTool>> {
        self.0.values().flat_map(BTreeMap::values)
    }

    /// Whether there is nothing to serve.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
