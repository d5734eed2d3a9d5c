//! `oncebox config`

use serde_json::json;

use super::Context;
use super::failure::Failure;

pub(super) fn run(context: &Context) -> Result<(), Failure> {
    let row = |shown: &crate::config::Shown| {
        let cells = [shown.key, &shown.value, &shown.source, shown.environment];
        let object = json!({
            "key": shown.key,
            "value": shown.value,
            "source": shown.source,
            "environment": shown.environment,
        });
        (cells.map(str::to_owned).to_vec(), object)
    };
    let rows: Vec<_> = context.config.shown().iter().map(row).collect();
    Ok(context.output.rows(&["setting", "value", "from", "environment"], &rows)?)
}
