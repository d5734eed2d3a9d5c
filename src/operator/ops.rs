//! `oncebox ops`: operations as an operator sees them, and what may be done to them.

mod act;
mod advice;
mod answer;
mod list;
mod show;
mod wait;

use clap::Subcommand;

use super::Context;
use super::failure::{Failure, seen_enough};
use act::{ReleaseFlags, ResolveFlags, RetryFlags};
use answer::{ApproveFlags, DenyFlags, WithdrawFlags};
use list::ListFlags;
use show::ShowFlags;
use wait::WaitFlags;

/// Looks at operations, and acts on them.
#[derive(Debug, Subcommand)]
pub(super) enum OpsVerb {
    List(ListFlags),
    Show(ShowFlags),
    Wait(WaitFlags),
    Retry(RetryFlags),
    Release(ReleaseFlags),
    Resolve(ResolveFlags),
    Approve(ApproveFlags),
    Deny(DenyFlags),
    Withdraw(WithdrawFlags),
}

pub(super) async fn run(context: &Context, verb: OpsVerb) -> Result<(), Failure> {
    match verb {
        OpsVerb::List(flags) => seen_enough(list::run(context, flags).await),
        OpsVerb::Show(flags) => seen_enough(show::run(context, &flags).await),
        OpsVerb::Wait(flags) => wait::run(context, &flags).await,
        OpsVerb::Retry(flags) => act::retry(context, &flags).await,
        OpsVerb::Release(flags) => act::release(context, &flags).await,
        OpsVerb::Resolve(flags) => act::resolve(context, &flags).await,
        OpsVerb::Approve(flags) => answer::approve(context, &flags).await,
        OpsVerb::Deny(flags) => answer::deny(context, &flags).await,
        OpsVerb::Withdraw(flags) => answer::withdraw(context, &flags).await,
    }
}
