#!/usr/bin/env python3
"""Publishes operations from Python, with nothing but the SQL function oncebox.submit.

The application inserts its order and submits the operation in ONE transaction: both are there
after the commit, and neither after a rollback. The operation key comes from the order's own
number, so a second run with the same prefix creates nothing twice: it is told what became of
the first.

The role that connects needs EXECUTE on oncebox.submit (role oncebox_publisher) and its own table.
"""

import argparse
import collections
import json
import sys

import psycopg

CREATE_ORDERS = """
create table if not exists app_orders (
    order_number text primary key,
    subject text not null,
    operation_id uuid not null
)
"""

# Named parameters: the function may grow, and the call stays readable.
SUBMIT = """
select oncebox.submit(
    tenant => %(tenant)s,
    environment => %(environment)s,
    workflow_id => %(order)s,
    step_id => %(step)s,
    tool => %(tool)s,
    tool_version => %(tool_version)s,
    arguments => %(arguments)s::json,
    actor => %(actor)s,
    metadata => %(metadata)s::json
)
"""

INSERT_ORDER = """
insert into app_orders (order_number, subject, operation_id) values (%s, %s, %s)
on conflict (order_number) do nothing
"""


def parse_flags() -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--dsn", required=True, help="how to reach PostgreSQL, as a URL or key=value pairs")
    flags.add_argument("--count", type=int, default=10, help="orders to place (default 10)")
    flags.add_argument("--prefix", default="order", help="start of the order numbers (default order)")
    flags.add_argument("--rollback-every", type=int, default=0, metavar="N",
                       help="roll every N-th transaction back instead of committing it")
    flags.add_argument("--tenant", default="acme")
    flags.add_argument("--environment", default="production")
    flags.add_argument("--tool", default="tickets.create")
    flags.add_argument("--tool-version", help="default: the tool's current version")
    return flags.parse_args()


def place_order(connection: psycopg.Connection, flags: argparse.Namespace, number: int) -> str:
    """Places one order and submits its ticket; returns the outcome's status, or 'rolled_back'."""
    order = f"{flags.prefix}-{number}"
    arguments = {"queue_id": "orders", "subject": f"Order {order}", "body": f"Please pack order {order}."}
    # Leaving this block commits; an exception, psycopg.Rollback among them, rolls back.
    with connection.transaction() as transaction:
        [envelope] = connection.execute(SUBMIT, {
            "tenant": flags.tenant,
            "environment": flags.environment,
            "order": order,
            "step": "record-order",
            "tool": flags.tool,
            "tool_version": flags.tool_version,
            # Repeated calls must send the same bytes: SQL compares them, not their meaning.
            "arguments": json.dumps(arguments, sort_keys=True, separators=(",", ":")),
            "actor": "order-service",
            "metadata": json.dumps({"source": "publish.py"}),
        }).fetchone()
        if envelope["operation_id"] is None:
            raise psycopg.Rollback(transaction)  # refused without a record: no order either
        connection.execute(INSERT_ORDER, (order, arguments["subject"], envelope["operation_id"]))
        if flags.rollback_every and number % flags.rollback_every == 0:
            raise psycopg.Rollback(transaction)
        return envelope["status"]
    return "rolled_back"


def main() -> int:
    flags = parse_flags()
    statuses: collections.Counter[str] = collections.Counter()
    with psycopg.connect(flags.dsn, autocommit=True) as connection:
        connection.execute(CREATE_ORDERS)
        for number in range(1, flags.count + 1):
            statuses[place_order(connection, flags, number)] += 1
        rolled_back = statuses.pop("rolled_back", 0)
        print(json.dumps({
            "submitted": flags.count,
            "committed": flags.count - rolled_back,
            "rolled_back": rolled_back,
            "by_status": dict(statuses),
        }))
    return 0


if __name__ == "__main__":
    sys.exit(main())
