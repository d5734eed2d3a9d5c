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
import time

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
    flags.add_argument("--patience-seconds", type=float, default=60,
                       help="how long to repeat one order while the database is away (default 60)")
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
            # A repeated call must send the same bytes: SQL compares them, not their meaning.
            "arguments": json.dumps(arguments, sort_keys=True, separators=(",", ":")),
            "actor": "order-service",
            "metadata": json.dumps({"source": "publish.py"}),
        }).fetchone()
        status = envelope["status"]
        if status == "rejected":
            raise psycopg.Rollback(transaction)  # this key belongs to another request: no order either
        connection.execute(INSERT_ORDER, (order, arguments["subject"], envelope["operation_id"]))
        if flags.rollback_every and number % flags.rollback_every == 0:
            status = "rolled_back"
            raise psycopg.Rollback(transaction)
    return status


class Publisher:
    """A connection that is made again when it breaks.

    A transaction that failed, and a commit whose answer was lost, are simply repeated: the key makes
    the second submission an answer about the first.
    """

    def __init__(self, flags: argparse.Namespace) -> None:
        self.flags = flags
        self.connection: psycopg.Connection | None = None

    def place(self, number: int) -> str:
        deadline = time.monotonic() + self.flags.patience_seconds
        while True:
            try:
                return place_order(self.connected(), self.flags, number)
            # The server is away or restarting, or another transaction holds the key (lock time-out).
            # Rollback comes out only when the connection broke in the middle of rolling back.
            except (psycopg.OperationalError, psycopg.Rollback):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def connected(self) -> psycopg.Connection:
        if self.connection is None or self.connection.closed:
            self.connection = psycopg.connect(self.flags.dsn, autocommit=True, connect_timeout=5)
            self.connection.execute(CREATE_ORDERS)
        return self.connection


def main() -> int:
    flags = parse_flags()
    publisher = Publisher(flags)
    try:
        statuses = collections.Counter(publisher.place(number) for number in range(1, flags.count + 1))
    except psycopg.Error as error:
        # An unregistered tool, an unfit key, a right that is missing: repeating would not help.
        print(f"publish.py: {error.diag.message_primary or error}", file=sys.stderr)
        return 1
    rolled_back = statuses.pop("rolled_back", 0)
    print(json.dumps({
        "submitted": flags.count,
        "committed": flags.count - rolled_back - statuses["rejected"],
        "rolled_back": rolled_back,
        "by_status": {status: count for status, count in statuses.items() if count},
    }))
    return 0


if __name__ == "__main__":
    sys.exit(main())
