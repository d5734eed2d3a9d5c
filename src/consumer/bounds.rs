//! What a batch of claims may start of the tools whose contracts bound all processes together.

use std::collections::{BTreeMap, BTreeSet};

use super::claim::Claiming;
use crate::domain::claim::Purpose;
use crate::domain::places::Places;
use crate::store::{self, Connection, LiveClaims, StoreError};

/// The bounded tools of a batch. Any other tool has a place for everybody.
#[derive(Debug, Default)]
pub(super) struct Bounds(BTreeMap<String, Bounded>);

/// What a tool has left, and what became of those who asked.
#[derive(Debug)]
struct Bounded {
    places: Places,
    /// `None`: another worker was counting.
    live: Option<LiveClaims>,
    freed_before: u64,
    started: bool,
    refused: bool,
}

impl Bounds {
    /// Counts the live claims of those of `tools` that bound them. Nobody waits for another worker's
    /// count: what it concerns is asked again in a moment, and other tools' records are not kept
    /// locked meanwhile.
    pub(super) async fn count(
        connection: &mut Connection,
        tools: BTreeSet<&str>,
        claiming: &Claiming,
    ) -> Result<Self, StoreError> {
        let shares = tools.into_iter().filter_map(|tool| Some((tool, claiming.share(tool)?)));
        let mut bounds = Self::default();
        for (tool, share) in shares {
            let bounded = Bounded {
                places: Places::NONE,
                live: None,
                freed_before: share.freed_so_far(),
                started: false,
                refused: false,
            };
            bounds.0.insert(tool.to_owned(), bounded);
        }
        if bounds.0.is_empty() {
            return Ok(bounds);
        }
        let tools: Vec<String> = bounds.0.keys().cloned().collect();
        let held = store::lock_claims(connection, &tools).await?;
        let counted = store::live_claims(connection, &held, &claiming.owner).await?;
        for tool in held {
            let live = counted.get(&tool).copied().unwrap_or_default();
            if let (Some(bounded), Some(share)) = (bounds.0.get_mut(&tool), claiming.share(&tool)) {
                bounded.places = Places::left(share.total, live.all());
                bounded.live = Some(live);
            }
        }
        Ok(bounds)
    }

    /// Whether the tool has a place left.
    pub(super) fn has_place(&mut self, tool: &str) -> bool {
        let Some(bounded) = self.0.get_mut(tool) else { return true };
        bounded.refused |= bounded.places.full();
        !bounded.places.full()
    }

    /// The same, and takes it. A poll owns no claim and needs none.
    pub(super) fn takes_place(&mut self, tool: &str, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Poll => return true,
            Purpose::Send | Purpose::LookUp => {}
        }
        let Some(bounded) = self.0.get_mut(tool) else { return true };
        let taken = bounded.places.take();
        bounded.started |= taken;
        bounded.refused |= !taken;
        taken
    }

    /// Tells the worker's view of each tool. It is a hint: it may be told before the commit.
    pub(super) fn tell(&self, claiming: &Claiming) {
        for (tool, bounded) in &self.0 {
            if let Some(share) = claiming.share(tool) {
                let Bounded { live, freed_before, refused, started, .. } = *bounded;
                share.counted(live, freed_before, refused, started);
            }
        }
    }
}
