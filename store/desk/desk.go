// Package desk is the part of a store that only people and slow duties use. Its Go code and its statements are the same
// for all adapters. No claim and no result waits for it.
//
//	deaths.go   groups of dead tasks with one cause, and what people record about them
//	notices.go  events that people must know about, each of which is announced once
//	tokens.go   tokens of programs that use the HTTP API; only a hash of the secret of a token is stored
//	answers.go  the answers to requests, so that a client that got none can send its request again with the same key
//	figures.go  a row for each queue, kind and minute; only charts read them, so a lost minute only leaves a gap in a chart
//	blocked.go  the numbers of blocked tasks
package desk

import (
	"embed"

	"github.com/holdfastq/holdfast/store/internal/statement"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// Files has the statements. Each file of Go code has a file of statements with its name.
//
//go:embed *.sql
var Files embed.FS

// Variants returns the variants of the statements in Files.
func Variants() []statement.Variant {
	return []statement.Variant{{Name: "death_group", Of: "death_groups", Part: "groups", Is: "one_group"}}
}

// Desk executes the statements on the database of an adapter. It is safe for concurrent use. Its methods follow the rules
// of package store for adapters.
//
// A group has the dead tasks with one cause; see [holdfast.Fingerprint]. A result that makes a task dead records its
// fingerprint, and the change that ends this state deletes the record. Until RecordDeaths is called, restored and
// imported tasks have no record or an outdated one. A group is known if a task with its fingerprint is dead, or if a
// person has changed the group or one of its dead tasks, for example by a retry. A known group is kept, so that a
// resolved group without dead tasks can return, and the time of its first death does not change. If no person has
// changed the group itself, it is forgotten store.NoticeForgetAfter after its last dead task.
type Desk struct{ transactions transact.Transactions }

// New returns the desk of an adapter.
func New(t transact.Transactions) *Desk { return &Desk{t} }
