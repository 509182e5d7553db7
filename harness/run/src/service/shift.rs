//! Moves the times in a service's database, so that a service which goes on after a while finds everything as long ago as it was.
//!
//! Nothing is known of the tables but their types: instants are moved, and so are those in texts, which the service has written as RFC 3339
//! (the simulated one has whole rows as JSON). Only times of the run are: releases, certificates and "never" stay.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, SimpleQueryMessage};
use vlab_api::Timestamp;
use vlab_drive::journal::Shift;

use super::watch;

/// A table with its columns of one kind.
struct Table {
    name: String,
    columns: Vec<String>,
}

/// Moves all of them, and forgets what the history has of the changes before.
///
/// # Errors
/// The database's answer.
pub async fn shift(conninfo: &str, by: &Shift) -> Result<(), tokio_postgres::Error> {
    let client = watch::connect(conninfo).await?;
    // Neither the history's triggers nor the service's: nothing has happened.
    client.batch_execute("BEGIN; SET LOCAL session_replication_role = replica").await?;
    let interval = format!("interval '{} microseconds'", by.by().as_micros());
    let (from, until) = by.span();
    let literal = |time: Timestamp| format!("to_timestamp({}::double precision / 1000000)", time.as_micros());
    for Table { name, columns } in tables(&client, "data_type LIKE 'timestamp%'").await? {
        let sets = columns.iter().map(|column| {
            let (from, until) = (literal(from), literal(until));
            format!(
                "{column} = CASE WHEN {column} BETWEEN {from} AND {until} THEN {column} + {interval} ELSE {column} END"
            )
        });
        let sets: Vec<String> = sets.collect();
        client.batch_execute(&format!("UPDATE {name} SET {}", sets.join(", "))).await?;
    }
    for Table { name, columns } in
        tables(&client, "data_type IN ('text', 'character varying', 'json', 'jsonb')").await?
    {
        texts(&client, &name, &columns, by).await?;
    }
    client
        .batch_execute(
            "DO $$ BEGIN
                 IF to_regclass('vlab_history.change') IS NOT NULL THEN TRUNCATE vlab_history.change; END IF;
             END $$;
             COMMIT",
        )
        .await
}

/// The tables with the columns for which that holds, quoted.
async fn tables(client: &Client, condition: &str) -> Result<Vec<Table>, tokio_postgres::Error> {
    let rows = client
        .query(
            &format!(
                "SELECT format('%I.%I', c.table_schema, c.table_name), array_agg(quote_ident(c.column_name) ORDER BY c.ordinal_position)
                 FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
                 WHERE c.table_schema = ANY (current_schemas(false)) AND t.table_type = 'BASE TABLE' AND c.{condition}
                 GROUP BY 1 ORDER BY 1"
            ),
            &[],
        )
        .await?;
    Ok(rows.iter().map(|row| Table { name: row.get(0), columns: row.get(1) }).collect())
}

/// Moves times in the texts of a table.
async fn texts(client: &Client, name: &str, columns: &[String], by: &Shift) -> Result<(), tokio_postgres::Error> {
    for column in columns {
        let found = client
            .simple_query(&format!(
                "SELECT ctid::text, {column}::text FROM {name} WHERE {column}::text ~ '\\d{{4}}-\\d\\d-\\d\\dT\\d'"
            ))
            .await?;
        let kind = client
            .query_one(
                "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = $1::text::regclass AND quote_ident(attname) = $2",
                &[&name, column],
            )
            .await?;
        let update =
            format!("UPDATE {name} SET {column} = $1::text::{} WHERE ctid = $2::text::tid", kind.get::<_, String>(0));
        for row in found {
            let SimpleQueryMessage::Row(row) = row else { continue };
            let (Some(place), Some(text)) = (row.get(0), row.get(1)) else { continue };
            let moved = by.text(text);
            if moved != text {
                let parameters: [&(dyn ToSql + Sync); 2] = [&moved.as_ref(), &place];
                client.execute(&update, &parameters).await?;
            }
        }
    }
    Ok(())
}
