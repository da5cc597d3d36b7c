// Package flow implements the roles that decide which ready tasks may start: gates, limits, breakers, order and topics.
// Its code runs inside claims, results and inserts, in the transactions of the adapters. A role with a .sql file has the
// same statements for all adapters; the adapters have the other statements.
package flow

import "embed"

// Files has the statements that have the same text for all adapters.
//
//go:embed *.sql
var Files embed.FS
