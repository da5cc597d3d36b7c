// Package postgres is the store on PostgreSQL 13 or newer.
//
// Each operation is one .go file and the .sql file of the same name in sql/. The
// statements name tables as holdfast.tasks and so on; the configured schema is put in when the
// store is opened, so that they mean the same inside a caller's transaction, whatever
// its search_path is.
//
// # What it promises
//
// Every call returns soon after its context ends, even if the network or the server
// hangs; calls whose context has no end give up after [readTimeout] of silence, but for those that wait for a sign
// of presence. A statement
// whose answer was lost is never sent a second time behind the caller's back.
// Deadlocks and serialization failures are repeated a few times inside the call. Rows are locked in
// the order of their ids, so that there are next to none. Repairs that have to look at all tasks do so in steps
// that are each a short transaction over a range of ids, however many tasks there are.
//
// # What it keeps in memory
//
// The lanes it has stored before, and which cancellations the runs of this process have been told of.
// Nothing goes wrong when that is lost.
package postgres
