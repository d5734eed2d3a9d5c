//! The promises, each tested at the boundary where it could be lost.

mod canonical_json;
