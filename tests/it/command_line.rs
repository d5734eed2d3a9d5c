//! Whoever types a command is told what to do next, and its exit code does not lie.

use std::process::Command;

use crate::support::process::oncebox;
use crate::support::wire::execute;
use crate::support::world::World;

/// Exit code, stdout and stderr of the real binary.
fn ended(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn run(world: &World, line: &str) -> (Option<i32>, String, String) {
    ended(oncebox(world, &line.split_whitespace().collect::<Vec<_>>()))
}

/// Three operations of one ordering key, and one without.
async fn world() -> World {
    let world = World::new().await;
    execute(&world, "insert into oncebox.contracts (tool_name, tool_version, contract_text, material_digest, is_current) values ('a', '1', 'none', 'none', true)").await;
    for submit in [
        "select oncebox.submit('acme', 'test', 'a', '1', 'a', '1', '{}', ordering_key => 'k')",
        "select oncebox.submit('acme', 'test', 'a', '2', 'a', '1', '{}', ordering_key => 'k')",
        "select oncebox.submit('acme', 'test', 'a', '3', 'a', '1', '{}')",
    ] {
        execute(&world, submit).await;
    }
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_refused_where_it_would_let_nobody_pass() {
    let world = world().await;
    let (code, _, told) = run(&world, "ops release acme:test:a:2");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("waits for its turn itself"), "{told}");
    let (code, _, told) = run(&world, "ops release acme:test:a:3");
    assert_eq!(code, Some(1), "{told}");
    let (code, shown, told) = run(&world, "ops release acme:test:a:1");
    assert_eq!(code, Some(0), "{told}");
    assert!(shown.contains("those behind it may pass"), "{shown}");
    // The head is out of the way: now nothing is before the second, and nothing behind it.
    let (code, _, told) = run(&world, "ops release acme:test:a:2");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("nothing waits behind it"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finding_that_comes_too_early_or_contradicts_says_what_is_next() {
    let world = world().await;
    execute(&world, "update oncebox.operations set status = 'unknown', phase = null, reason = 'worker_lost', claim_epoch = 2, attempts = 1, first_sent_at = now(), key_first_used_at = now(), updated_at = now() where operation_key = 'acme:test:a:3'").await;
    let (code, _, told) =
        run(&world, "ops resolve acme:test:a:3 --not-applied --by ann --reason seen");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("this can be said from 20"), "{told}");
    assert!(!told.contains("--not-applied"), "not what was just refused: {told}");

    execute(&world, "update oncebox.operations set status = 'failed_permanent', reason = 'refused' where operation_key = 'acme:test:a:3'").await;
    let (code, shown, told) =
        run(&world, "ops resolve acme:test:a:3 --applied T-1 --by ann --reason seen");
    assert!(shown.contains("is now unknown (conflict)"), "{shown} {told}");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("oncebox ops resolve"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_cannot_be_used_says_so_before_all_else() {
    let world = World::new().await;
    let contract = format!("{}/contracts/mail.send.yaml", env!("CARGO_MANIFEST_DIR"));
    let activate = |url: &str| {
        ended(oncebox(&world, &["contract", "activate", &contract, "--database-url", url]))
    };
    let (code, _, told) = activate("postgres://nobody@127.0.0.1:1/none");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("check DATABASE_URL"), "{told}");

    execute(&world, "drop schema oncebox cascade").await;
    let (code, _, told) = activate(&world.database);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("run `oncebox migrate`") && !told.contains("at line"), "{told}");
    let (code, _, told) = run(&world, "contract activate .");
    assert_eq!(code, Some(2), "no file is no success: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_fails_for_what_must_be_kept_manual() {
    let world = World::new().await;
    let check = |file: &str| {
        let (code, shown, told) = ended(oncebox(&world, &["contract", "check", file, "--json"]));
        let report: serde_json::Value =
            serde_json::from_str(&shown).unwrap_or_else(|e| panic!("{e}: {shown} {told}"));
        (code, report)
    };
    let example = |name: &str| format!("{}/contracts/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let (code, report) = check(&example("tickets.create"));
    assert_eq!((code, report["verdict"].as_str()), (Some(0), Some("automate")), "{report:#}");
    let ids = |list: &str| -> Vec<String> {
        let rows = report[list].as_array().unwrap();
        rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    let rows = "effect identity sameness claim replay in_flight unknown permission expiry tests";
    assert_eq!(ids("worksheet"), rows.split(' ').collect::<Vec<_>>());
    assert_eq!(ids("queue_contract"), ["delivered_twice", "effect_queried", "crash_before_ack"]);

    // What this repository shows off passes, also the mail that nobody can ask about.
    for (name, verdict) in
        [("mail.send", "keep_manual"), ("reviewed/tickets.create", "automate_with_approval")]
    {
        let (code, report) = check(&example(name));
        assert_eq!((code, report["verdict"].as_str()), (Some(0), Some(verdict)), "{report:#}");
        assert_eq!(report["approval"]["suffices"], true, "{report:#}");
    }

    // Blind and irreversible, and it sends without a person's word.
    let blind = crate::support::downstream::mails("http://127.0.0.1:9", "")
        .replace("effect_class: key_based", "effect_class: irreversible");
    let file = world.contracts.join("mail.yaml");
    std::fs::write(&file, &blind).unwrap();
    let (code, report) = check(file.to_str().unwrap());
    assert_eq!((code, report["verdict"].as_str()), (Some(1), Some("keep_manual")), "{report:#}");
    assert_eq!(report["approval"]["suffices"], false, "{report:#}");
    std::fs::write(&file, format!("{blind}approval: {{wait: 72h, expires: 24h}}\n")).unwrap();
    let (code, report) = check(file.to_str().unwrap());
    assert_eq!(report["approval"]["suffices"], true, "{report:#}");
    assert_eq!((code, &report["ok"]), (Some(0), &true.into()), "{report:#}");
}
